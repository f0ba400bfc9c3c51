//! Files of tokens and certificates are read again when they change. A change counts once two looks find the same, so that half a file
//! is not taken for a whole one. What is wrong is reported once, and what was in force stays.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::Notice;
use super::config::TlsFiles;
use super::tls;
use crate::tokens::{self, Tokens};

/// What a look finds, and what the look before it did.
struct Looks<T> {
    in_force: Option<T>,
    before: Option<T>,
    reported: Option<String>,
}

/// What is to be done after a look.
#[derive(Debug, PartialEq, Eq)]
enum Step<T> {
    Nothing,
    Take(T),
    Report(String),
}

impl<T: Clone + PartialEq> Looks<T> {
    fn new(in_force: Option<T>) -> Looks<T> {
        Looks {
            before: in_force.clone(),
            in_force,
            reported: None,
        }
    }

    fn look(&mut self, found: Result<T, String>) -> Step<T> {
        match found {
            Ok(found) => {
                let is_steady = self.before.as_ref() == Some(&found);
                self.before = Some(found.clone());
                if !is_steady {
                    return Step::Nothing;
                }
                self.reported = None;
                if self.in_force.as_ref() == Some(&found) {
                    return Step::Nothing;
                }
                self.in_force = Some(found.clone());
                Step::Take(found)
            }
            Err(why) => {
                self.before = None;
                // At the second look that finds it: a file that is being replaced is absent for a moment.
                match self.reported.replace(why.clone()) {
                    Some(before) if before == why => Step::Nothing,
                    _ => Step::Report(why),
                }
            }
        }
    }
}

/// Looks at the file of tokens for ever.
pub(super) async fn tokens(
    path: PathBuf,
    pause: Duration,
    sender: watch::Sender<Arc<Tokens>>,
    notices: impl Fn(Notice),
) {
    let mut looks = Looks::new(Some(Tokens::clone(&sender.borrow())));
    loop {
        sleep(pause).await;
        let path = path.clone();
        let found = beside(move || tokens::read(&path).map_err(|error| error.to_string()));
        match looks.look(found.await) {
            Step::Nothing => {}
            Step::Take(tokens) => {
                let count = tokens.all().len();
                sender.send_replace(Arc::new(tokens));
                notices(Notice::TokensChanged { tokens: count });
            }
            Step::Report(why) => notices(Notice::TokensRefused { why }),
        }
    }
}

/// Looks at the files of the certificate for ever.
pub(super) async fn certificate(
    files: TlsFiles,
    pause: Duration,
    sender: watch::Sender<Arc<rustls::ServerConfig>>,
    notices: impl Fn(Notice),
) {
    let mut looks = Looks::new(tls::texts(&files).ok());
    loop {
        sleep(pause).await;
        let looked_at = files.clone();
        let found = beside(move || {
            let texts = tls::texts(&looked_at).map_err(|error| error.to_string())?;
            // A pair of which one half is new yet is no change.
            tls::build(&looked_at, &texts).map_err(|error| error.to_string())?;
            Ok(texts)
        });
        match looks.look(found.await) {
            Step::Nothing => {}
            Step::Take(texts) => match tls::build(&files, &texts) {
                Ok(config) => {
                    sender.send_replace(config);
                    notices(Notice::CertificateChanged);
                }
                Err(error) => notices(Notice::CertificateRefused {
                    why: error.to_string(),
                }),
            },
            Step::Report(why) => notices(Notice::CertificateRefused { why }),
        }
    }
}

/// Reads files beside the connections' thread.
async fn beside<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let found = tokio::task::spawn_blocking(read).await;
    found.unwrap_or_else(|_| Err("reading the files failed".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_at_the_second_look_and_a_fault_is_reported_once() {
        let mut looks = Looks::new(Some(1));
        assert_eq!(looks.look(Ok(1)), Step::Nothing);
        assert_eq!(looks.look(Ok(2)), Step::Nothing);
        assert_eq!(looks.look(Ok(3)), Step::Nothing);
        assert_eq!(looks.look(Ok(3)), Step::Take(3));
        assert_eq!(looks.look(Ok(3)), Step::Nothing);
        let fault = || Err("line 3".to_owned());
        assert_eq!(looks.look(fault()), Step::Report("line 3".to_owned()));
        assert_eq!(looks.look(fault()), Step::Nothing);
        let other = Err("line 4".to_owned());
        assert_eq!(looks.look(other), Step::Report("line 4".to_owned()));
        assert_eq!(looks.look(Ok(3)), Step::Nothing);
        assert_eq!(looks.look(Ok(3)), Step::Nothing, "it is in force still");
        assert_eq!(looks.look(fault()), Step::Report("line 3".to_owned()));
    }
}
