//! Certificates, users and rights of a real etcd.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use asterism_lab::etcd::{EtcdServer, write_certificates};
use asterism_truth_store::etcd::{EtcdConfig, EtcdStore, EtcdTls, EtcdUser};
use asterism_truth_store::{Outcome, Prefix, Transaction, TruthError, TruthStore, clock};
use tempfile::TempDir;

use crate::etcd::{config, key, server};

/// A call of the test's own, with the whole answer.
pub(crate) fn post(address: SocketAddr, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

fn put() -> Transaction {
    Transaction::new().put(key("a"), *b"a")
}

fn commits(store: &mut EtcdStore) {
    let mut last = None;
    for _ in 0..100 {
        match store.commit(&put()) {
            Ok(Outcome::Committed(_)) => return,
            other => last = Some(other),
        }
        asterism_lab::pause(std::time::Duration::from_millis(100));
    }
    panic!("{last:?}")
}

#[test]
fn users_log_in_and_log_in_again() {
    let Some(mut server) = server() else { return };
    let address = server.address();
    post(
        address,
        "/v3/auth/user/add",
        r#"{"name":"root","password":"secret"}"#,
    );
    post(
        address,
        "/v3/auth/user/grant",
        r#"{"user":"root","role":"root"}"#,
    );
    post(address, "/v3/auth/enable", "{}");
    let mut stranger = EtcdStore::new(&config("s", address), clock::monotonic()).unwrap();
    let denied = stranger.read(&Prefix::all()).unwrap_err();
    assert!(matches!(denied, TruthError::Denied { .. }), "{denied}");
    let denied = stranger.commit(&put()).unwrap_err();
    assert!(matches!(denied, TruthError::Denied { .. }), "{denied}");
    let with = |password: &str| {
        let user = Some(EtcdUser {
            name: "root".into(),
            password: password.into(),
        });
        let config = EtcdConfig {
            user,
            ..config("u", address)
        };
        EtcdStore::new(&config, clock::monotonic()).unwrap()
    };
    let wrong = with("wrong").read(&Prefix::all()).unwrap_err();
    assert!(matches!(wrong, TruthError::Denied { .. }), "{wrong}");
    assert!(!wrong.to_string().contains("wrong"), "{wrong}");
    let mut store = with("secret");
    commits(&mut store);
    // Tokens end with the process that gave them.
    server.kill();
    server.restart();
    commits(&mut store);
    let changes = store.changes(
        &Prefix::all(),
        asterism_truth_store::Revision(0),
        std::time::Duration::ZERO,
    );
    assert!(changes.is_ok(), "{changes:?}");
}

#[test]
fn certificates_are_checked_in_both_directions() {
    if let Err(why) = asterism_lab::needs(&["etcd", "openssl"]) {
        println!("SKIPPED the truth store by TLS: {why}");
        return;
    }
    let folder = TempDir::new().unwrap();
    write_certificates(folder.path()).unwrap();
    let other = TempDir::new().unwrap();
    write_certificates(other.path()).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let server = EtcdServer::start_with(&[
        "--cert-file",
        &path("server.pem"),
        "--key-file",
        &path("server.key"),
        "--trusted-ca-file",
        &path("ca.pem"),
        "--client-cert-auth",
    ])
    .unwrap();
    let text = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let with = |authority: &Path, client: Option<&Path>| {
        let client = client.map(|it| (text(it, "client.pem"), text(it, "client.key")));
        let mut config = config("a", server.address());
        config.endpoints = vec![format!("https://{}", server.address())];
        config.tls = Some(EtcdTls {
            authorities: text(authority, "ca.pem"),
            client,
        });
        EtcdStore::new(&config, clock::monotonic()).unwrap()
    };
    let (ours, theirs) = (folder.path(), other.path());
    commits(&mut with(ours, Some(ours)));
    for (authority, client) in [(theirs, Some(ours)), (ours, None), (ours, Some(theirs))] {
        let refused = with(authority, client).read(&Prefix::all());
        assert!(
            matches!(refused, Err(TruthError::Away { .. })),
            "{refused:?}"
        );
    }
}
