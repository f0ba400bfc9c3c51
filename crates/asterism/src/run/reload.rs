//! What of a configuration can change while the host runs, and what cannot. All or nothing: one change that cannot be made
//! keeps all others from being made.

use std::any::Any;
use std::sync::Arc;

use crate::config::functions::{FunctionSettings, Outside, WithFunction};
use crate::config::{Config, ObjectChoice};

/// What to do instead. A host that is started anew alone is refused by those that knew its earlier life.
const ALL_ANEW: &str = "stop all hosts, then start them with it";

/// Compares what runs with what is wanted; tells what would change, for people.
///
/// # Errors
/// A sentence for each change that needs a new start.
pub fn changes(now: &Config, wanted: &Config) -> Result<Vec<String>, Vec<String>> {
    let mut refused = Vec::new();
    let mut refuse = |same: bool, what: &str, why: &str| {
        if !same {
            refused.push(format!("{what} cannot change while the host runs: {why}"));
        }
    };
    let (a, b) = (&now.cluster, &wanted.cluster);
    refuse(a.name == b.name, "[cluster] name", ALL_ANEW);
    refuse(a.key == b.key, "[cluster] key", ALL_ANEW);
    refuse(a.epochs == b.epochs, "[cluster] epochs", ALL_ANEW);
    refuse(
        a.members == b.members,
        "[cluster] members",
        "leases are dealt by place in the list; stop all hosts, then start them with it",
    );
    refuse(
        a.addresses == b.addresses,
        "[cluster.member] addresses",
        ALL_ANEW,
    );
    refuse(a.channel == b.channel, "[cluster.channel]", ALL_ANEW);
    let (a, b) = (&now.host, &wanted.host);
    refuse(a.name == b.name, "[host] name", ALL_ANEW);
    refuse(a.instances == b.instances, "[host] instances", ALL_ANEW);
    refuse(a.cores == b.cores, "[host] cores", ALL_ANEW);
    refuse(a.control == b.control, "[host] control", ALL_ANEW);
    refuse(a.metrics == b.metrics, "[host] metrics", ALL_ANEW);
    refuse(now.ports == wanted.ports, "[port]", ALL_ANEW);
    let (a, b) = (&now.function, &wanted.function);
    let of_function = a.settings.change_to(&b.settings);
    refuse(
        a.name == b.name && of_function.is_some(),
        &format!("[function.{}]", a.name),
        ALL_ANEW,
    );
    refuse(
        a.objects == b.objects,
        &format!("[function.{}.state]", a.name),
        ALL_ANEW,
    );
    if !refused.is_empty() {
        return Err(refused);
    }
    let name = now.function.name;
    let of_function = of_function.into_iter().flatten();
    let (a, b) = (&now.host, &wanted.host);
    let changes = [
        ("idle", a.idle != b.idle),
        ("state", a.state != b.state),
        ("join_wait", a.join_wait != b.join_wait),
        ("drain_max", a.drain_max != b.drain_max),
        ("eve", a.eve != b.eve),
    ];
    Ok(changes
        .into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(field, _)| format!("[host] {field}"))
        .chain(of_function.map(|field| format!("[function.{name}] {field}")))
        .collect())
}

/// The function that is configured, once for each instance of a running one.
pub(crate) struct Copies<'a>(pub(super) &'a [ObjectChoice], pub(super) usize);

impl WithFunction for Copies<'_> {
    type Output = Result<Vec<Box<dyn Any + Send>>, String>;

    fn with<S: FunctionSettings>(self, settings: &S) -> Self::Output {
        let function = Arc::new(settings.function(self.0)?);
        let copy = |_| Box::new(function.clone()) as Box<dyn Any + Send>;
        Ok((0..self.1).map(copy).collect())
    }

    fn with_outside(self, settings: &Outside) -> Self::Output {
        settings.copies(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Config {
        let (config, report) = Config::read("test.toml", text);
        config.unwrap_or_else(|| panic!("{}", report.render(false)))
    }

    use crate::config::Settings;

    #[test]
    fn rules_of_a_firewall_may_change_and_nothing_else_of_it() {
        let text = "[function.firewall]\nrules = \"a.rules\"";
        let with = |text: &str, rules: &str| {
            let mut config = read(text);
            let Settings::Firewall(settings) = &mut config.function.settings else {
                panic!("a firewall")
            };
            settings.read_rules("a.rules", rules).unwrap();
            config
        };
        let now = with(text, "default drop");
        assert_eq!(changes(&now, &now), Ok(Vec::new()));
        let moved = with(&format!("# a comment\n{text}"), "default drop");
        assert_eq!(changes(&now, &moved), Ok(Vec::new()));
        let wanted = with(text, "allow tcp on inside");
        assert_eq!(
            changes(&now, &wanted),
            Ok(vec!["[function.firewall] rules".to_owned()])
        );
        let wanted = with(&format!("{text}\npick_up = true"), "allow tcp on inside");
        assert!(changes(&now, &wanted).unwrap_err()[0].contains("[function.firewall]"));
    }

    #[test]
    fn nothing_of_a_chains_stages_changes() {
        let text =
            "chain = [\"firewall\", \"pass-through\"]\n[function.firewall]\nrules = \"a.rules\"";
        let with = |text: &str, rules: &'static str| {
            let mut config = read(text);
            let mut report = crate::config::diagnostic::Report::new("test.toml", text);
            let read = |_: &std::path::Path| Ok(("a.rules".to_owned(), rules.to_owned()));
            config.function.settings.read_files(&read, &mut report);
            assert_eq!(report.errors(), 0);
            config
        };
        let now = with(text, "default drop");
        let moved = with(&format!("# a comment\n{text}"), "default drop");
        assert_eq!(changes(&now, &moved), Ok(Vec::new()));
        let wanted = with(text, "allow tcp on inside");
        assert_eq!(changes(&now, &wanted).unwrap_err().len(), 1);
    }

    #[test]
    fn a_balancers_services_change_and_the_rest_of_it_does_not() {
        let with = |services: &str, rest: &str| {
            read(&format!(
                "[function.balancer]\n{rest}\nservices.web = {{ address = \"203.0.113.10:80\", backends = [{services}] }}"
            ))
        };
        let one = "{ address = \"10.0.0.10\" }";
        let now = with(one, "");
        let wanted = with("{ address = \"10.0.0.10\", drain = true }", "");
        assert_eq!(
            changes(&now, &wanted),
            Ok(vec!["[function.balancer] services".to_owned()])
        );
        let refused = changes(&now, &with(one, "persistence = \"1h\"")).unwrap_err();
        assert!(refused[0].contains("[function.balancer]"), "{refused:?}");
        assert!(changes(&now, &read("[function.pass-through]")).is_err());
    }

    #[test]
    fn all_or_nothing_with_a_sentence_each() {
        let now = read("[host]\nidle = \"sleep\"\n[function.pass-through]");
        assert_eq!(changes(&now, &now), Ok(Vec::new()));
        let wanted = read("[host]\nidle = \"spin\"\nstate = \"state\"\n[function.pass-through]");
        assert_eq!(
            changes(&now, &wanted),
            Ok(vec!["[host] idle".to_owned(), "[host] state".to_owned()])
        );
        let wanted = read(
            "[cluster]\nname = \"other\"\n[host]\nidle = \"spin\"\ninstances = 2\n[function.pass-through]\naccess = \"read\"",
        );
        let refused = changes(&now, &wanted).unwrap_err();
        assert_eq!(refused.len(), 3, "{refused:?}");
        assert!(refused[0].contains("[cluster] name") && refused[2].contains("pass-through"));
    }
}
