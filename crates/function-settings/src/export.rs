//! The protocol of the export to a collector: a field of the monitor, and of a NAT's log.

use asterism_functions::ipfix::Export;

use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{ChosenWord, Default, Setting};

/// The protocol of the export to a collector: a setting beside the collector's address.
pub(crate) const fn export_protocol() -> Setting {
    Setting {
        kind: Kind::Choice {
            allowed: &[
                Word {
                    word: "ipfix",
                    meaning: "IPFIX (RFC 7011).",
                },
                Word {
                    word: "netflow-v9",
                    meaning: "NetFlow version 9 (RFC 3954), with the same records: for collectors that do not read IPFIX.",
                },
            ],
            refused: &[],
        },
        default: Default::Is("\"ipfix\""),
        meaning: "The protocol that the collector speaks.",
    }
}

/// What was chosen of [`export_protocol`].
pub(crate) fn export(word: ChosenWord) -> Export {
    match word {
        "netflow-v9" => Export::NetFlow9,
        _ => Export::Ipfix,
    }
}
