//! Where and of what a measure was made: processor, cores, kernel, commit.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine, as far as it decides figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model name, family, model and stepping of the processor.
    pub processor: String,
    /// Cores that are online.
    pub cores: u32,
    /// Name, release and architecture of the kernel.
    pub kernel: String,
    /// MiB of memory.
    pub memory_mib: u64,
    /// The kernel's setting of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: String,
    /// How this binary was built.
    pub profile: String,
}

impl Machine {
    /// Reads `/proc` and `/sys`; what cannot be read is "unknown" or zero.
    pub fn describe() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kernel = |file: &str| {
            fs::read_to_string(format!("/proc/sys/kernel/{file}"))
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let huge =
            fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        Self {
            processor: match field(&cpuinfo, "model name") {
                Some(name) => format!(
                    "{name}, family {} model {} stepping {}, {} KiB cache",
                    field(&cpuinfo, "cpu family").unwrap_or("?"),
                    field(&cpuinfo, "model").unwrap_or("?"),
                    field(&cpuinfo, "stepping").unwrap_or("?"),
                    field(&cpuinfo, "cache size")
                        .unwrap_or("?")
                        .trim_end_matches(" KB"),
                ),
                None => "unknown".to_owned(),
            },
            cores: crate::cores::cores().len() as u32,
            kernel: format!(
                "{} {} {}",
                kernel("ostype"),
                kernel("osrelease"),
                std::env::consts::ARCH
            ),
            memory_mib: field(&meminfo, "MemTotal")
                .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib / 1024),
            huge_pages: huge
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'))
                .map_or_else(|| "unknown".to_owned(), |(word, _)| word.to_owned()),
            profile: if cfg!(debug_assertions) {
                "debug".to_owned()
            } else {
                "release".to_owned()
            },
        }
    }
}

/// The commit of the source tree, `-dirty` appended if tracked files have changes; `unknown` where git or the tree is absent.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(env!("CARGO_MANIFEST_DIR"))
            .args(arguments)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match git(&["rev-parse", "--short=12", "HEAD"]) {
        Some(hash) => match git(&["status", "--porcelain", "--untracked-files=no"]) {
            Some(changes) if changes.is_empty() => hash,
            _ => format!("{hash}-dirty"),
        },
        None => "unknown".to_owned(),
    }
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 167\nmodel name\t: A: B\n";
        assert_eq!(field(text, "model"), Some("167"));
        assert_eq!(field(text, "model name"), Some("A: B"));
        assert_eq!(field(text, "name"), None);
    }

    #[test]
    fn this_machine_has_cores_and_a_kernel() {
        let machine = Machine::describe();
        assert!(machine.cores >= 1);
        assert!(machine.kernel.contains(std::env::consts::ARCH));
    }
}
