//! `asterism keygen`: writes a key file.

use std::path::Path;

use asterism_config::key_file::write_new;
use asterism_output::End;
use asterism_output::{Output, Schema};
use serde::Serialize;

/// What `asterism keygen` reports. Never the key.
#[derive(Clone, Debug, Serialize)]
pub struct KeygenDocument {
    /// The file.
    pub file: String,
    /// The key's number.
    pub id: u8,
}

/// The schema of [`KeygenDocument`].
pub const KEYGEN: Schema = Schema {
    name: "asterism.keygen",
    version: 1,
};

/// `asterism keygen`: writes a key file.
pub fn run(file: &Path, id: u8, output: &mut Output<'_>) -> End {
    if let Err(error) = write_new(file, id) {
        return output.fail(End::File, &error);
    }
    if output.json() {
        output.document(
            KEYGEN,
            &KeygenDocument {
                file: file.display().to_string(),
                id,
            },
        );
    } else {
        output.text(&format!(
            "Wrote key {id} to {0}.\nCopy it to every host of the cluster over a safe channel, keep its mode 0600, and name it in the configuration:\n\n  [cluster]\n  key = \"{0}\"\n",
            file.display()
        ));
    }
    output.end(End::Done)
}
