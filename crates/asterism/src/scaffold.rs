//! `asterism new`: writes a network function in a crate of its own, ready to build, test and run on captures.

use std::fs;
use std::path::{Path, PathBuf};

use asterism_config::functions::Functions;
use asterism_output::End;
use asterism_output::{Output, Schema};
use serde::Serialize;

/// Files of the crate: their names, and what they hold before names are put in.
const FILES: [(&str, &str); 9] = [
    ("Cargo.toml", include_str!("../templates/new/Cargo.toml.in")),
    ("README.md", include_str!("../templates/new/README.md.in")),
    (".gitignore", include_str!("../templates/new/gitignore.in")),
    ("src/lib.rs", include_str!("../templates/new/src/lib.rs.in")),
    (
        "src/main.rs",
        include_str!("../templates/new/src/main.rs.in"),
    ),
    (
        "src/settings.rs",
        include_str!("../templates/new/src/settings.rs.in"),
    ),
    ("one.toml", include_str!("../templates/new/one.toml.in")),
    ("three.toml", include_str!("../templates/new/three.toml.in")),
    (
        "tests/function.rs",
        include_str!("../templates/new/tests/function.rs.in"),
    ),
];

/// Libraries that functions are made of, and what for. A new crate names them and takes none.
const LIBRARIES: [(&str, &str); 6] = [
    (
        "asterism-forwarding",
        "a router between two links: ARP, routes, fragments, ICMP errors",
    ),
    ("asterism-translation", "address and port translation"),
    (
        "asterism-tracking",
        "which flow a packet is of, and what both ends of a connection said",
    ),
    (
        "asterism-balancing",
        "which backend a flow gets, and which backends live",
    ),
    ("asterism-detection", "who scans, and what is flooded"),
    ("asterism-blocking", "who is blocked, and for how long"),
];

/// Names that a crate cannot have: words of the language, and what it imports.
const TAKEN: [&str; 16] = [
    "asterism",
    "asterism-function",
    "core",
    "std",
    "alloc",
    "test",
    "proc-macro",
    "self",
    "super",
    "crate",
    "fn",
    "match",
    "type",
    "use",
    "mod",
    "move",
];

/// What `asterism new` reports.
#[derive(Clone, Debug, Serialize)]
pub struct NewDocument {
    /// The folder.
    pub folder: String,
    /// Its files.
    pub files: Vec<&'static str>,
}

/// The schema of [`NewDocument`].
pub const NEW: Schema = Schema {
    name: "asterism.new",
    version: 1,
};

/// Why there is no new crate. What was written by then is taken away again.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    /// The folder stays as it is.
    #[error(
        "{} exists and was left as it is: choose another name, or --into another folder",
        .0.display()
    )]
    Exists(PathBuf),
    /// The folder or a file in it could not be written.
    #[error("cannot write {}: {error}", folder.display())]
    NotWritten {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// There is no folder of sources there.
    #[error("cannot use the sources in {}: {error}", folder.display())]
    Unreadable {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// There is a folder, of something else.
    #[error("{} holds no sources of Asterism: name the folder with its `crates`", .0.display())]
    NoSources(PathBuf),
}

/// Why a crate cannot have a name.
#[derive(Debug, thiserror::Error)]
enum NameError {
    #[error(
        "{0:?} cannot be a crate's name: use 1 to 63 of a-z, 0-9 and single hyphens, beginning with a letter, such as rate-monitor"
    )]
    NotAName(String),
    #[error("a function of the library is called {0:?}: choose another name, such as my-{0}")]
    OfAFunction(String),
    #[error("{0:?} is taken: choose another name, such as my-{0}")]
    Taken(String),
}

/// `asterism new`.
pub fn run(name: &str, into: &Path, asterism: Option<&Path>, output: &mut Output<'_>) -> End {
    if let Err(error) = check_name(name) {
        return output.fail(End::CommandLine, &error);
    }
    let folder = into.join(name);
    if let Err(error) = write(name, &folder, asterism) {
        return output.fail(End::File, &error);
    }
    if output.json() {
        output.document(
            NEW,
            &NewDocument {
                folder: folder.display().to_string(),
                files: FILES.iter().map(|(file, _)| *file).collect(),
            },
        );
    } else {
        output.text(&format!(
            "Wrote {0}. Next:\n\n  cd {0}\n  cargo test\n  cargo run -- check three.toml\n  cargo run -- replay three.toml --in capture.pcap --out left.pcap\n\nThe function is in src/lib.rs, what the operator chooses of it in src/settings.rs.\n",
            folder.display()
        ));
    }
    output.end(End::Done)
}

/// Writes the crate into a folder that must not exist.
///
/// # Errors
/// Says what could not be written; what was written by then is taken away again.
pub fn write(name: &str, folder: &Path, asterism: Option<&Path>) -> Result<(), NewError> {
    let sources = asterism.map(sources).transpose()?;
    let dependency = |krate: &str| match &sources {
        Some(path) => format!(
            "path = {:?}",
            path.join("crates")
                .join(krate.trim_start_matches("asterism-"))
        ),
        None => format!("git = {:?}", env!("CARGO_PKG_REPOSITORY")),
    };
    let type_name: String = name
        .split('-')
        .map(|word| {
            word.chars()
                .take(1)
                .flat_map(char::to_uppercase)
                .chain(word.chars().skip(1))
                .collect::<String>()
        })
        .collect();
    let library = |(library, what_for): (&str, &str)| {
        format!("# {what_for}\n# {library} = {{ {} }}", dependency(library))
    };
    let libraries = LIBRARIES.map(library).join("\n");
    let fill = |template: &str| {
        template
            .replace("{{name}}", name)
            .replace("{{crate}}", &name.replace('-', "_"))
            .replace("{{Type}}", &type_name)
            .replace("{{repository}}", env!("CARGO_PKG_REPOSITORY"))
            .replace("{{asterism}}", &dependency("asterism"))
            .replace("{{asterism-function}}", &dependency("asterism-function"))
            .replace("{{libraries}}", &libraries)
    };
    if folder.exists() {
        return Err(NewError::Exists(folder.to_owned()));
    }
    let written = FILES.iter().try_for_each(|(file, template)| {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, fill(template))
    });
    written.map_err(|error| {
        // Nothing was there before.
        let _ = fs::remove_dir_all(folder);
        NewError::NotWritten {
            folder: folder.to_owned(),
            error,
        }
    })
}

/// The sources' folder as an absolute path.
fn sources(folder: &Path) -> Result<PathBuf, NewError> {
    let absolute = folder
        .canonicalize()
        .map_err(|error| NewError::Unreadable {
            folder: folder.to_owned(),
            error,
        })?;
    if absolute.join("crates/function/Cargo.toml").is_file() {
        Ok(absolute)
    } else {
        Err(NewError::NoSources(folder.to_owned()))
    }
}

fn check_name(name: &str) -> Result<(), NameError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let starts = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase());
    if !starts
        || name.len() > 63
        || !name.bytes().all(good)
        || name.ends_with('-')
        || name.contains("--")
    {
        return Err(NameError::NotAName(name.to_owned()));
    }
    if Functions::default().names().any(|taken| taken == name) {
        return Err(NameError::OfAFunction(name.to_owned()));
    }
    if TAKEN.contains(&name) || LIBRARIES.iter().any(|(library, _)| *library == name) {
        return Err(NameError::Taken(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["rate-monitor", "a", "x2"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in [
            "", "-a", "a-", "a--b", "2a", "Rate", "a_b", "../a", "a/b", "fn", "asterism", "ä",
            "nat",
        ] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    /// Uncommented, each is a dependency that is there.
    #[test]
    fn libraries_are_named_where_they_are() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("rate-monitor");
        write("rate-monitor", &made, Some(&sources)).unwrap();
        let manifest = fs::read_to_string(made.join("Cargo.toml")).unwrap();
        let taken = manifest.replace("# asterism-", "asterism-");
        let taken: toml::Table = taken.parse().unwrap();
        for (library, _) in LIBRARIES {
            let path = taken["dependencies"][library]["path"].as_str().unwrap();
            let own = fs::read_to_string(Path::new(path).join("Cargo.toml")).unwrap();
            assert!(own.contains(&format!("name = {library:?}")), "{path}");
            assert!(check_name(library).is_err());
        }
        let plain: toml::Table = manifest.parse().unwrap();
        assert_eq!(plain["dependencies"].as_table().unwrap().len(), 2);
    }

    #[test]
    fn every_place_is_filled_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("rate-monitor");
        write("rate-monitor", &made, None).unwrap();
        for (file, _) in FILES {
            let text = fs::read_to_string(made.join(file)).unwrap();
            assert!(
                !text.contains("{{")
                    || file.ends_with(".rs")
                        && !text.contains("{{name")
                        && !text.contains("{{Type"),
                "{file}: {text}"
            );
        }
        assert!(
            fs::read_to_string(made.join("src/lib.rs"))
                .unwrap()
                .contains("pub struct RateMonitorState")
        );
        assert!(
            write("rate-monitor", &made, None)
                .unwrap_err()
                .to_string()
                .contains("left as it is")
        );
        assert!(
            write("b", &folder.path().join("b"), Some(folder.path()))
                .unwrap_err()
                .to_string()
                .contains("no sources")
        );
        assert!(!folder.path().join("b").exists());
    }
}
