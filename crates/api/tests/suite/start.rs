//! A server on a free port of loopback, with tokens if asked, and its notices.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use asterism_api::Scope;
use asterism_api::server::{Notice, Server, ServerConfig};
use asterism_api::testing::FakeCluster;
use asterism_api::tokens::{self, Hash, Secret, Token};
use tempfile::TempDir;

/// How long a test waits for what must come.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Started {
    pub(crate) cluster: Arc<FakeCluster>,
    pub(crate) server: Server,
    pub(crate) notices: mpsc::Receiver<Notice>,
    pub(crate) folder: TempDir,
}

impl Started {
    /// Without tokens.
    pub(crate) fn open(change: impl FnOnce(&mut ServerConfig)) -> Started {
        Started::with(TempDir::new().unwrap(), change)
    }

    /// With the tokens `operator`, `reader` and `blue`, and their secrets.
    pub(crate) fn guarded(change: impl FnOnce(&mut ServerConfig)) -> (Started, Secrets) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("tokens.toml");
        let secrets = Secrets {
            operator: add(&path, "operator", Scope::Operator),
            reader: add(&path, "reader", Scope::ReadOnly),
            blue: add(&path, "blue", Scope::Tenant("blue".to_owned())),
        };
        let started = Started::with(folder, |config| {
            config.tokens = Some(path);
            change(config);
        });
        (started, secrets)
    }

    /// In a folder that a test has filled.
    pub(crate) fn with(folder: TempDir, change: impl FnOnce(&mut ServerConfig)) -> Started {
        let mut config = ServerConfig::loopback(0);
        config.limits.reread = Duration::from_millis(20);
        config.limits.events = Duration::from_millis(20);
        change(&mut config);
        let cluster = Arc::new(FakeCluster::new());
        let (sender, notices) = mpsc::channel();
        let report = move |notice| {
            // A test that has ended reads no further notices.
            let _ = sender.send(notice);
        };
        let server = Server::start(config, Arc::clone(&cluster) as _, report).unwrap();
        Started {
            cluster,
            server,
            notices,
            folder,
        }
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.server.local()
    }

    pub(crate) fn tokens(&self) -> PathBuf {
        self.folder.path().join("tokens.toml")
    }

    /// The count of a refusal, as `/metrics` has it. The server must have no tokens.
    pub(crate) fn refused(&self, reason: &str, metrics: &str) -> u64 {
        let row = format!("asterism_api_refused_total{{reason=\"{reason}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&row));
        line.unwrap().trim().parse().unwrap()
    }
}

pub(crate) struct Secrets {
    pub(crate) operator: String,
    pub(crate) reader: String,
    pub(crate) blue: String,
}

/// Adds a token and returns its secret.
pub(crate) fn add(path: &Path, name: &str, scope: Scope) -> String {
    let secret = Secret::draw().unwrap();
    let token = Token {
        name: name.to_owned(),
        scope,
        expires: None,
        hash: Hash::of(secret.reveal()),
    };
    tokens::add(path, &token).unwrap();
    secret.reveal().to_owned()
}
