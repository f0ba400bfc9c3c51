//! The file of tokens while a server runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use asterism_api::Scope;
use asterism_api::server::{ConfigError, Notice, Server, ServerConfig, StartError};
use asterism_api::testing::{Exchange, FakeCluster};
use asterism_api::tokens;

use crate::start::{Started, WAIT, add};

fn status(started: &Started, token: &str) -> u16 {
    let request = Exchange::new("GET", "/v1/cluster").token(token);
    request.send(started.local()).unwrap().status
}

/// Writes a file whole at once: what reads it meanwhile sees no half of it.
fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
fn a_change_is_taken_up_and_a_wrong_file_is_not() {
    let (started, secrets) = Started::guarded(|_| ());
    let path = started.tokens();
    assert_eq!(status(&started, &secrets.operator), 200);

    let carol = add(&path, "carol", Scope::ReadOnly);
    assert_eq!(
        started.notices.recv_timeout(WAIT),
        Ok(Notice::TokensChanged { tokens: 4 })
    );
    assert_eq!(status(&started, &carol), 200);

    let good = fs::read_to_string(&path).unwrap();
    write(
        &path,
        &format!("{good}\n[[token]]\nname = \"dave\"\nscope = \"root\"\nsha256 = \"00\"\n"),
    );
    let Ok(Notice::TokensRefused { why }) = started.notices.recv_timeout(WAIT) else {
        panic!("a wrong file must be reported")
    };
    let line = good.lines().count() + 2;
    assert!(
        why.contains(&format!("line {line}: the scope of dave")),
        "{why}"
    );
    assert_eq!(
        status(&started, &carol),
        200,
        "the former tokens stay in force"
    );
    assert!(
        started
            .notices
            .recv_timeout(Duration::from_millis(200))
            .is_err(),
        "reported once"
    );

    fs::remove_file(&path).unwrap();
    assert!(matches!(
        started.notices.recv_timeout(WAIT),
        Ok(Notice::TokensRefused { .. })
    ));
    assert_eq!(status(&started, &carol), 200);

    write(&path, &good);
    assert!(tokens::remove(&path, "carol").unwrap());
    assert_eq!(
        started.notices.recv_timeout(WAIT),
        Ok(Notice::TokensChanged { tokens: 3 })
    );
    assert_eq!(status(&started, &carol), 401);
    assert_eq!(status(&started, &secrets.operator), 200);
}

#[test]
fn what_is_not_safe_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let start = |change: &dyn Fn(&mut ServerConfig)| {
        let mut config = ServerConfig::loopback(0);
        change(&mut config);
        let cluster = std::sync::Arc::new(FakeCluster::new());
        let started = Server::start(config, cluster, |_| ());
        started.map(|server| server.stop()).map_err(|error| {
            assert!(error.to_string().len() > 20, "{error}");
            error
        })
    };
    let open = |config: &mut ServerConfig| config.listen = "0.0.0.0:0".parse().unwrap();
    let refused = start(&open).unwrap_err();
    assert!(
        matches!(refused, StartError::Config(ConfigError::NoTokens(_))),
        "{refused}"
    );
    let path = folder.path().join("tokens.toml");
    let refused = start(&|config| config.tokens = Some(path.clone())).unwrap_err();
    assert!(matches!(refused, StartError::Tokens(_)), "{refused}");
    add(&path, "one", Scope::Operator);
    let with_tokens = |config: &mut ServerConfig| {
        open(config);
        config.tokens = Some(path.clone());
    };
    let refused = start(&with_tokens).unwrap_err();
    assert!(
        matches!(refused, StartError::Config(ConfigError::NoTls(_))),
        "{refused}"
    );
    start(&|config| {
        with_tokens(config);
        config.plain = true;
    })
    .unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = start(&|config| config.listen = taken.local_addr().unwrap()).unwrap_err();
    assert!(matches!(refused, StartError::Bind { .. }), "{refused}");
}
