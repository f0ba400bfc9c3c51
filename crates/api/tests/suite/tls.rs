//! TLS: certificates that fit, that do not, and that change.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use asterism_api::client::{Client, ClientConfig, ClientError};
use asterism_api::server::{Notice, Server, ServerConfig, StartError, TlsFiles};
use asterism_api::testing::FakeCluster;
use tempfile::TempDir;

use crate::start::{Started, WAIT, add};

fn openssl(folder: &Path, line: &str) {
    let done = Command::new("openssl")
        .args(line.split(' '))
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// A certificate of 127.0.0.1 that signs itself, and its key.
fn certificate(folder: &Path, name: &str) {
    openssl(
        folder,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.pem -subj /CN={name} -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:false -days 2"
        ),
    );
    let key = folder.join(format!("{name}.key"));
    fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Puts one file in another's place, whole at once: what reads it meanwhile sees no half of it.
fn replace(folder: &Path, name: &str, by: &str) {
    fs::copy(folder.join(by), folder.join("new")).unwrap();
    fs::rename(folder.join("new"), folder.join(name)).unwrap();
}

fn is_absent() -> bool {
    let absent = Command::new("openssl").arg("version").output().is_err();
    if absent {
        println!("SKIPPED the API by TLS: openssl is not installed: apt-get install openssl");
    }
    absent
}

fn files(folder: &Path) -> TlsFiles {
    TlsFiles {
        certificate: folder.join("server.pem"),
        key: folder.join("server.key"),
    }
}

fn client(started: &Started, authority: &Path, token: &str) -> Client {
    let mut config = ClientConfig::new(&format!("https://{}", started.local()));
    config.token = Some(token.to_owned());
    config.authorities = Some(authority.to_owned());
    config.wait = WAIT;
    Client::new(&config).unwrap()
}

#[test]
fn tokens_travel_sealed_and_certificates_change() {
    if is_absent() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (path, tokens) = (folder.path().to_owned(), folder.path().join("tokens.toml"));
    certificate(&path, "server");
    certificate(&path, "other");
    fs::copy(path.join("server.pem"), path.join("first.pem")).unwrap();
    let token = add(&tokens, "operator", asterism_api::Scope::Operator);
    let started = Started::with(folder, |config| {
        config.tokens = Some(tokens);
        config.tls = Some(files(&path));
    });
    let first = client(&started, &path.join("first.pem"), &token);
    let other = client(&started, &path.join("other.pem"), &token);
    assert_eq!(first.cluster().unwrap().name, "edge");
    let refused = other.cluster().unwrap_err();
    assert!(
        matches!(refused, ClientError::NotTrusted { .. }),
        "{refused}"
    );

    // Half a change: certificate and key do not go together. The pair before it stays in force.
    replace(&path, "server.pem", "other.pem");
    let Ok(Notice::CertificateRefused { why }) = started.notices.recv_timeout(WAIT) else {
        panic!("half a change must be reported")
    };
    assert!(why.contains("cannot be used together"), "{why}");
    client(&started, &path.join("first.pem"), &token)
        .cluster()
        .unwrap();

    replace(&path, "server.key", "other.key");
    assert_eq!(
        started.notices.recv_timeout(WAIT),
        Ok(Notice::CertificateChanged)
    );
    assert_eq!(other.cluster().unwrap().name, "edge");
    // A connection from before goes on by the certificate that it was made with; a further one does not.
    let refused = client(&started, &path.join("first.pem"), &token)
        .cluster()
        .unwrap_err();
    assert!(
        matches!(refused, ClientError::NotTrusted { .. }),
        "{refused}"
    );
}

#[test]
fn who_speaks_no_tls_gets_nothing() {
    use std::io::{Read, Write};
    if is_absent() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_owned();
    certificate(&path, "server");
    let started = Started::with(folder, |config| {
        config.tls = Some(files(&path));
        config.limits.handshake = Duration::from_millis(200);
    });
    for hello in ["GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n", ""] {
        let mut stream = std::net::TcpStream::connect(started.local()).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream.write_all(hello.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // Closed with an alert, or reset: either way no HTTP.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.windows(4).any(|part| part == b"HTTP"), "{answer:?}");
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    if is_absent() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    certificate(path, "server");
    certificate(path, "other");
    let refused = |tls: TlsFiles| {
        let config = ServerConfig {
            tls: Some(tls),
            ..ServerConfig::loopback(0)
        };
        let started = Server::start(config, std::sync::Arc::new(FakeCluster::new()), |_| ());
        match started {
            Err(StartError::Tls(error)) => error.to_string(),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it must be refused"),
        }
    };
    let good = files(path);
    let with_key = |key: &str| TlsFiles {
        key: path.join(key),
        ..good.clone()
    };
    assert!(refused(with_key("other.key")).contains("cannot be used together"));
    assert!(refused(with_key("absent.key")).contains("absent.key"));
    assert!(refused(with_key("server.pem")).contains("open to everybody"));
    fs::write(path.join("empty.key"), "").unwrap();
    fs::set_permissions(path.join("empty.key"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(refused(with_key("empty.key")).contains("no private key in PEM"));
    let no_chain = TlsFiles {
        certificate: path.join("empty.key"),
        ..good
    };
    assert!(refused(no_chain).contains("no certificate in PEM"));
}
