//! What is shipped for Prometheus, Alertmanager and Grafana (`packaging/prometheus`, `packaging/grafana`).
//!
//! `files.rs` reads them, `consistent.rs` compares them with the code and the page, `tools.rs` has Prometheus' own tools judge them,
//! and `live.rs` runs Prometheus and Alertmanager over a cluster. The last two need Debian's packages `prometheus` and
//! `prometheus-alertmanager`; without them they print `SKIPPED`.

mod consistent;
mod files;
mod live;
mod tools;

/// Whether all programs are there; prints which is not.
fn has(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &&&str| std::env::split_paths(&path).any(|at| at.join(program).exists());
    match programs.iter().find(|program| !is_there(program)) {
        None => true,
        Some(missing) => {
            println!("SKIPPED metrics and alerts: {missing} is not installed");
            false
        }
    }
}
