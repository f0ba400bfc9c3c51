//! `asterism orchestrate` with a real etcd that asks for certificates, or for a user and a password. Says `SKIPPED` without etcd.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use asterism_lab::etcd::{EtcdServer, write_certificates};
use asterism_lab::wait_until;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// An orchestrator of a cluster whose host never comes; ends when dropped.
struct Orchestrator {
    process: Child,
    folder: TempDir,
}

impl Drop for Orchestrator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Orchestrator {
    /// Starts one with these lines in `[orchestrator]` and these secrets as files of mode 0600 beside the configuration.
    fn start(lines: &str, secrets: &[(&str, &str)]) -> Orchestrator {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        asterism_config::key_file::write_new(&path("cluster.key"), 1).unwrap();
        for (name, text) in secrets {
            std::fs::write(path(name), text).unwrap();
            std::fs::set_permissions(path(name), PermissionsExt::from_mode(0o600)).unwrap();
        }
        let address = crate::run::host::own_loopback_socket();
        let text = format!(
            "[cluster]\nkey = \"cluster.key\"\nepochs = \"epoch.toml\"\nmembers = [\"a\"]\norchestrators = [\"{address}\"]\n\
             [orchestrator]\nterm = \"1s\"\n{lines}\n[function.nat]\noutside = [\"203.0.113.1\"]\n"
        );
        std::fs::write(path("asterism.toml"), text).unwrap();
        let log = File::create(path("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_asterism"))
            .arg("orchestrate")
            .arg(path("asterism.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Orchestrator { process, folder }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn wait_for(&self, line: &str) {
        let waited = wait_until(line, PATIENCE, || self.log().contains(line));
        assert!(waited.is_ok(), "{line}: {}", self.log());
    }
}

#[test]
fn etcd_is_reached_by_tls_with_certificates_of_both() {
    if let Err(why) = asterism_lab::needs(&["etcd", "openssl"]) {
        println!("SKIPPED an orchestrator with etcd by TLS: {why}");
        return;
    }
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&ours, &theirs] {
        write_certificates(folder.path()).unwrap();
    }
    let path = |name: &str| ours.path().join(name).display().to_string();
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
    let lines = |authority: &Path, client: Option<&Path>| {
        let mut lines = format!(
            "etcd = [\"{}\"]\netcd_ca = \"{}\"\n",
            server.address(),
            authority.join("ca.pem").display()
        );
        if let Some(client) = client {
            lines += &format!(
                "etcd_certificate = \"{}\"\netcd_key = \"client.key\"\n",
                client.join("client.pem").display()
            );
        }
        lines
    };
    let key = std::fs::read_to_string(ours.path().join("client.key")).unwrap();
    let secrets = [("client.key", key.as_str())];
    let good = Orchestrator::start(&lines(ours.path(), Some(ours.path())), &secrets);
    good.wait_for("event=leads");
    assert_eq!(
        good.log().matches("store-failed").count(),
        0,
        "{}",
        good.log()
    );
    drop(good);
    // Without a certificate, or for another authority, it decides nothing and says why.
    for (authority, client) in [(ours.path(), None), (theirs.path(), Some(ours.path()))] {
        let refused = Orchestrator::start(&lines(authority, client), &secrets);
        refused.wait_for("event=store-failed");
        assert!(!refused.log().contains("event=leads"), "{}", refused.log());
    }
    // A key that others may read is none.
    let open = Orchestrator::start(&lines(ours.path(), Some(ours.path())), &[]);
    open.wait_for("etcd_key");
}

#[test]
fn etcd_is_logged_in_to_with_the_password_of_a_file() {
    let Some(server) = EtcdServer::start() else {
        println!("SKIPPED an orchestrator with users of etcd: etcd is not installed");
        return;
    };
    let address = server.address();
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"a secret"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("enable", "{}"),
    ] {
        post(address, path, body);
    }
    let lines =
        format!("etcd = [\"{address}\"]\netcd_user = \"root\"\netcd_password = \"password\"\n");
    let good = Orchestrator::start(&lines, &[("password", "a secret\n")]);
    good.wait_for("event=leads");
    let wrong = Orchestrator::start(&lines, &[("password", "another one\n")]);
    wrong.wait_for("event=store-failed");
    assert!(!wrong.log().contains("event=leads"), "{}", wrong.log());
    for log in [good.log(), wrong.log()] {
        assert!(
            !log.contains("secret") && !log.contains("another one"),
            "{log}"
        );
    }
}

fn post(address: SocketAddr, path: &str, body: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v3/auth/{path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
