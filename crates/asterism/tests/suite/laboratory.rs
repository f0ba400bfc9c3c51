//! `asterism lab` as it is called. What needs root says `SKIPPED` without.

use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_asterism");
/// How long anything may take that should take a moment.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

const PLAN: &str = r#"
[[node]]
name = "client"
ip = ["address add 10.1.0.1/24 dev eth0"]

[[node]]
name = "server"
ip = ["address add 10.1.0.2/24 dev eth0", "address add 10.2.0.2/24 dev eth1"]
sysctl = { "net/ipv4/ip_default_ttl" = "77" }
run = ["echo $LAB; exec sleep 1000"]

[[node]]
name = "other"
ip = ["address add 10.2.0.3/24 dev eth0"]

[[node]]
name = "switch"

[[wire]]
ends = ["client:eth0", "server:eth0"]
delay = "20ms"

[[bridge]]
node = "switch"
name = "br"
ends = ["server:eth1", "other:eth0"]

[[cable]]
ends = ["client:spare", "other:spare"]
mtu = 9000
offloads = true
"#;

/// Whether laboratories can be built; if not, says so.
fn permitted() -> bool {
    let permitted = asterism_lab::permitted();
    if !permitted {
        println!("SKIPPED asterism lab: network namespaces need root");
    }
    permitted
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .arg("lab")
        .args(arguments)
        .output()
        .unwrap()
}

fn with_plan(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("laboratory.toml");
    std::fs::write(&path, text).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

#[test]
fn a_command_runs_in_a_laboratory_of_ones_own() {
    if !permitted() {
        return;
    }
    let (_folder, plan) = with_plan(PLAN);
    let output = run(&[
        "up",
        &plan,
        "--exec",
        "ping -c 3 -i 0.1 10.1.0.2 && ip -br link && ls -d $LAB",
    ]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.contains("3 received") && said.contains("ttl=77"),
        "{said}"
    );
    assert!(said.contains("spare@"), "{said}");
    let fastest: f64 = said
        .split("min/avg/max")
        .nth(1)
        .and_then(|rest| rest.split(['=', '/']).nth(2)?.trim().parse().ok())
        .unwrap_or_else(|| panic!("{said}"));
    assert!(fastest >= 40.0, "{said}");
    let folder = said.lines().last().unwrap();
    assert!(
        folder.contains("asterism-lab-") && !Path::new(folder).exists(),
        "{folder}"
    );
    assert_eq!(
        run(&["up", &plan, "--exec", "exit 7"]).status.code(),
        Some(7)
    );
    assert_eq!(
        run(&["up", &plan, "--exec", "kill -9 $$"]).status.code(),
        Some(137)
    );
}

/// Frames of 64 KiB through a host whose ports take them.
#[test]
fn large_frames_pass_a_host() {
    if !permitted() {
        return;
    }
    let command = "exec 3<>/dev/tcp/198.51.100.2/80 && printf 'GET /20000000 HTTP/1.0\\r\\n\\r\\n' >&3 && wc -c <&3";
    let command = format!("bash -c \"{command}\"; cat /proc/net/dev");
    let output = run(&["up", "--hosts", "1", "--offloads", "--exec", &command]);
    let said = String::from_utf8_lossy(&output.stdout);
    let bytes: usize = said.lines().next().unwrap().trim().parse().unwrap();
    assert!(bytes > 20_000_000, "{output:?}");
    let port = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("nat1:"));
    let columns: Vec<u64> = port
        .unwrap()
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    assert!(columns[0] / columns[1] > 3_000, "bytes a frame: {said}");
}

/// The laboratory of a NAT cluster: this very program as its hosts.
#[test]
fn a_command_runs_behind_nat_hosts() {
    if !permitted() {
        return;
    }
    for hosts in ["1", "2"] {
        let command = "ping -c 3 -i 0.2 -W 2 198.51.100.2 && exec 3<>/dev/tcp/198.51.100.2/80 && printf 'GET /1000 HTTP/1.0\\r\\n\\r\\n' >&3 && wc -c <&3";
        let command = format!("bash -c \"{command}\"");
        let output = run(&["up", "--hosts", hosts, "--asymmetric", "--exec", &command]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert!(said.contains("ttl=63"), "{said}");
        let bytes: usize = said.lines().last().unwrap().trim().parse().unwrap();
        assert!((1_000..1_200).contains(&bytes), "{said}");
    }
}

#[test]
fn mistakes_are_said_before_anything_is_built() {
    let (_folder, plan) =
        with_plan("[[node]]\nname = \"a\"\n[[cable]]\nends = [\"a:eth0\", \"b:eth0\"]\n");
    let output = run(&["up", &plan]);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("laboratory.toml") && said.contains("no node \"b\""),
        "{said}"
    );
    assert_eq!(run(&["up", "/no/such/file"]).status.code(), Some(4));
    for bad in [
        &["up", "--hosts", "0"][..],
        &["up", "--hosts", "17"],
        &["up", "--delay", "5"],
        &["up", "--loss", "2"],
        &["up", "file.toml", "--hosts", "2"],
        &["down"],
        &[],
    ] {
        assert_eq!(run(bad).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn without_root_it_says_what_is_needed() {
    if !permitted() {
        return;
    }
    let (folder, plan) = with_plan(PLAN);
    let program = folder.path().join("asterism");
    std::fs::copy(PROGRAM, &program).unwrap();
    for path in [folder.path(), program.as_path()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // A process that another test begins meanwhile has the copy open for writing until it runs its own program.
    let mut run = None;
    let has_run = || {
        let output = Command::new(&program)
            .args(["lab", "up", &plan])
            .uid(65_534)
            .gid(65_534)
            .output();
        let is_busy = |error: &std::io::Error| error.kind() == ErrorKind::ExecutableFileBusy;
        let has_run = !output.as_ref().is_err_and(is_busy);
        run = Some(output);
        has_run
    };
    asterism_lab::wait_until("a copy that can be run", PATIENCE, has_run).unwrap();
    let output = run.expect("it was tried").unwrap();
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("needs root") && said.contains("sudo"),
        "{said}"
    );
}

/// Ctrl-C is how a laboratory ends: nothing may stay.
#[test]
fn an_interrupted_laboratory_leaves_nothing_behind() {
    if !permitted() {
        return;
    }
    let (_folder, plan) = with_plan(PLAN);
    let mut up = Command::new(PROGRAM)
        .args(["lab", "up", &plan])
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let client = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some((_, file)) = line.split_once("nsenter --net=") {
            break file.to_owned();
        }
    };
    let inside = Command::new("nsenter")
        .args([&format!("--net={client}"), "ping", "-c1", "-W2", "10.1.0.2"])
        .output()
        .unwrap();
    assert!(inside.status.success(), "{inside:?}");
    // As a terminal does; to this process alone, by its number.
    Command::new("kill")
        .args(["-INT", &up.id().to_string()])
        .status()
        .unwrap();
    up.wait().unwrap();
    let folder = format!("asterism-lab-{}-0", up.id());
    let folder = std::env::temp_dir().join(folder);
    asterism_lab::wait_until("the end of its folder", PATIENCE, || !folder.exists()).unwrap();
    let sleeper = |process: &std::path::PathBuf| {
        std::fs::read(process.join("environ")).is_ok_and(|environment| {
            let mark = format!("LAB={}", folder.display());
            environment
                .split(|byte| *byte == 0)
                .any(|word| word == mark.as_bytes())
        })
    };
    asterism_lab::wait_until("the end of its processes", PATIENCE, || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        !processes.map(|entry| entry.path()).any(|one| sleeper(&one))
    })
    .unwrap();
}
