//! `asterism store` as operators run it, and as clients see it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use asterism::command_line;
use asterism_output::End;

use crate::run::stores::StoreProcess;

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

/// Says something; so much of the answer.
fn say(stream: &mut TcpStream, text: &str, answer: &str) {
    stream.write_all(text.as_bytes()).unwrap();
    let mut read = vec![0; answer.len()];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(String::from_utf8_lossy(&read), answer, "{text}");
}

const SET: &str = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\none\r\n";
const GET: &str = "*2\r\n$3\r\nGET\r\n$1\r\na\r\n";

#[test]
fn a_store_keeps_what_it_acknowledged_and_ends_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "sesame\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&secret, mode).unwrap();
    let arguments = [
        "--append",
        "store.aof",
        "--sync",
        "always",
        "--password-file",
        "secret",
    ];
    let mut store = StoreProcess::start(folder.path(), "127.0.0.1:0", &arguments);
    assert!(store.log().contains("password=yes"), "{}", store.log());
    let mut client = connect(store.address);
    say(&mut client, SET, "-NOAUTH");
    let mut client = connect(store.address);
    say(
        &mut client,
        "*2\r\n$4\r\nAUTH\r\n$6\r\nsesame\r\n",
        "+OK\r\n",
    );
    say(&mut client, SET, "+OK\r\n");
    store.stop();
    let store = StoreProcess::start(folder.path(), "127.0.0.1:0", &arguments);
    let mut client = connect(store.address);
    say(
        &mut client,
        "*2\r\n$4\r\nAUTH\r\n$6\r\nsesame\r\n",
        "+OK\r\n",
    );
    say(&mut client, GET, "$3\r\none\r\n");
}

#[test]
fn clients_that_misbehave_harm_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--clients-max", "20", "--memory-max", "2MiB"];
    let mut store = StoreProcess::start(folder.path(), "127.0.0.1:0", &arguments);
    let mut good = connect(store.address);
    say(&mut good, SET, "+OK\r\n");
    let is_over = |stream: &mut TcpStream| match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        &[0xFF; 10_000],
        b"*1000000000\r\n",
        b"*2\r\n$3\r\nGET\r\n$99999999999\r\n",
        b"*1\r\n:5\r\n",
    ] {
        let mut bad = connect(store.address);
        let _ = bad.write_all(bytes);
        let _ = bad.shutdown(std::net::Shutdown::Write);
        assert!(is_over(&mut bad), "{bytes:?}");
    }
    // More than it holds is refused, and more clients than it takes.
    let value = "x".repeat(1 << 20);
    let mut full = connect(store.address);
    for number in 0..4 {
        let set = format!("*3\r\n$3\r\nSET\r\n$1\r\n{number}\r\n$1048576\r\n{value}\r\n");
        full.write_all(set.as_bytes()).unwrap();
    }
    let mut answers = Vec::new();
    full.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = full.read_to_end(&mut answers);
    assert!(String::from_utf8_lossy(&answers).contains("-OOM"));
    let mut idle: Vec<TcpStream> = (0..60).map(|_| connect(store.address)).collect();
    assert!(idle.iter_mut().skip(40).all(is_over));
    say(&mut good, GET, "$3\r\none\r\n");
    drop(idle);
    store.stop();
    let log = store.log();
    assert!(log.contains("connections_refused="), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_store_that_cannot_run_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "sesame\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&secret, mode).unwrap();
    let no_file = folder.path().join("no.aof");
    std::fs::write(&no_file, "this is none\n").unwrap();
    let store = StoreProcess::start(folder.path(), "127.0.0.1:0", &[]);
    let taken = store.address.to_string();
    let (secret, no_file) = (secret.to_str().unwrap(), no_file.to_str().unwrap());
    for (arguments, end, said) in [
        (&["--listen", &taken][..], End::File, "name another address"),
        (&["--listen", "127.0.0.1"], End::CommandLine, "--listen"),
        (&["--memory-max", "5"], End::CommandLine, "has no unit"),
        (
            &["--memory-max", "5KiB"],
            End::CommandLine,
            "write 1MiB or more",
        ),
        (&["--sync", "always"], End::CommandLine, "--append"),
        (&["--password-file", secret], End::File, "chmod 600"),
        (
            &["--password-file", "/nonexistent"],
            End::File,
            "cannot be read",
        ),
        (&["--append", no_file], End::File, "no.aof"),
    ] {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let listen = match arguments.contains(&"--listen") {
            true => &[][..],
            false => &["--listen", "127.0.0.1:0"],
        };
        let all = ["asterism", "store"].iter().chain(arguments).chain(listen);
        let ended = command_line::run(all.map(Into::into), &mut stdout, &mut stderr, false);
        let text = String::from_utf8(stderr).unwrap();
        assert_eq!(ended, end, "{arguments:?}: {text}");
        assert!(text.contains(said), "{arguments:?}: {text}");
    }
}
