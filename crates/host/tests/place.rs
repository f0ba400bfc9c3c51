//! The control socket's place: one process holds it, and what a killed process left is removed.

use std::fs;
use std::os::unix::net::UnixListener;

use asterism_host::control::place::{Place, wait_until_free};

use std::os::unix::fs::PermissionsExt;

#[test]
fn one_process_at_a_time_and_what_is_left_is_cleaned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let place = Place::take(&path).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let error = Place::take(&path).unwrap_err().to_string();
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || wait_until_free(&path)
    });
    assert!(
        error.contains(&format!("pid {}", std::process::id())),
        "{error}"
    );
    assert!(path.exists(), "the refused one touches nothing");
    assert!(!waiting.is_finished(), "it is held");
    drop(place);
    waiting.join().unwrap();
    assert!(!path.exists());
    // The state after a killed process.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let place = Place::take(&path).unwrap();
    drop(place);
    assert!(
        Place::take(&folder.path().join("absent/a.sock"))
            .unwrap_err()
            .to_string()
            .contains("[host]")
    );
}
