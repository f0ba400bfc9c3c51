//! What steps do to hosts and between them, and what they ask of their state. A part of [`World`].

use core::net::SocketAddrV4;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asterism_config::diagnostic::Diagnostic;
use asterism_config::files;
use asterism_config::{Config, Purpose};
use asterism_engine::Instance;
use asterism_function::notice::{Notice, questions};
use asterism_function::records::read_records;
use asterism_function::{
    NetworkFunction, metrics_of, objects_of, report_of, stage_names, values_of,
};
use asterism_functions::balancer::{CONTROL, CheckResult};
use asterism_functions::firewall::{FLOWS_QUESTION, KnownFlow};
use asterism_host::eve::line::Author;
use asterism_host::run::flows;
use asterism_host::run::reload::{self, Copies, Written};
use asterism_host_view::Asked;
use asterism_host_view::requests::has_word;
use asterism_placement::{Incarnation, Time};

use super::checked;
use super::error::ExpectationError;
use super::step::{Count, Step, What};
use super::world::World;

/// Entries that one look at a table shows, and alerts that one question tells.
const PART: u32 = 1_024;
/// Alerts that a failure shows at most.
const ALERTS_SHOWN_MAX: usize = 3;

impl<F: NetworkFunction> World<'_, F> {
    pub(super) fn other(&mut self, step: &Step, until: Time) -> Result<(), Diagnostic> {
        match &step.what {
            What::Kill(host) => self.kill(step, *host),
            What::Without(host) => self.without(step, *host),
            What::Return(host) => self.give_back(step, *host),
            What::Link(between, delay) => {
                self.link(*between, *delay);
                Ok(())
            }
            What::Cut(one, other) => {
                self.cut((*one, *other), true);
                Ok(())
            }
            What::Heal(between) => {
                match between {
                    Some(between) => self.cut(*between, false),
                    None => {
                        let network = self.fleet.cluster_mut().network_mut();
                        network.change_all(|link| link.partitioned = false);
                    }
                }
                Ok(())
            }
            What::Table {
                object,
                count,
                host,
            } => self.table(step, until, object, *count, *host),
            What::Metric { name, count, host } => self.metric(step, until, name, *count, *host),
            What::State { .. } => self.state(step, until),
            What::Alert { texts, host } => self.alert(step, until, texts, *host),
            What::Check {
                host,
                backend,
                is_down,
            } => self.found(step, *host, *backend, *is_down),
            What::Reload(file) => self.reload(step, file),
            _ => Ok(()),
        }
    }

    // --- incarnations

    fn name(&self, host: usize) -> String {
        self.config.cluster.members[host].clone()
    }

    fn kill(&mut self, step: &Step, host: usize) -> Result<(), Diagnostic> {
        if !core::mem::replace(&mut self.alive[host], false) {
            return Err(self.failure(step, format!("{} is dead already", self.name(host))));
        }
        self.fleet.kill(host);
        Ok(())
    }

    /// Anyone who is left out stops, if it has not ended yet.
    fn without(&mut self, step: &Step, host: usize) -> Result<(), Diagnostic> {
        let names = [self.name(host)];
        let next = self
            .epochs
            .next(&self.config.cluster.members, &names, &[], false);
        let next = next.and_then(|mut next| next.fence(&names).map(|()| next));
        self.epochs = next.map_err(|why| self.failure(step, why.to_string()))?;
        if self.alive[host] {
            self.kill(step, host)?;
        }
        self.install(step)
    }

    fn give_back(&mut self, step: &Step, host: usize) -> Result<(), Diagnostic> {
        let name = self.name(host);
        if self.alive[host] {
            return Err(self
                .failure(step, format!("{name} is alive"))
                .help(format!("write `kill {name}` before")));
        }
        let again = [name.clone()];
        let next = self
            .epochs
            .next(&self.config.cluster.members, &[], &again, false);
        self.epochs = next.map_err(|why| self.failure(step, why.to_string()))?;
        let incarnation = Incarnation(self.epochs.members[&name]);
        let begun = self.fleet.begin_again(host, incarnation);
        begun.map_err(|why| self.failure(step, why.to_string()))?;
        self.alive[host] = true;
        // What its new incarnation drops is counted from nothing.
        self.reported.retain(|(of, _), _| *of != host);
        self.install(step)
    }

    /// Puts the epoch in force at all that live.
    fn install(&mut self, step: &Step) -> Result<(), Diagnostic> {
        let roster = self.epochs.roster(&self.config.cluster.members);
        for host in self.asked(None) {
            let installed = self.fleet.cluster_mut().install(host, &roster);
            installed.map_err(|why| self.failure(step, format!("{}: {why}", self.name(host))))?;
        }
        Ok(())
    }

    fn link(&mut self, between: Option<(usize, usize)>, delay: Duration) {
        let network = self.fleet.cluster_mut().network_mut();
        match between {
            None => network.change_all(|link| link.delay = delay),
            Some((one, other)) => {
                network.link_mut(one as u16, other as u16).delay = delay;
                network.link_mut(other as u16, one as u16).delay = delay;
            }
        }
    }

    fn cut(&mut self, (one, other): (usize, usize), is_cut: bool) {
        let network = self.fleet.cluster_mut().network_mut();
        let (one, other) = ([one as u16], [other as u16]);
        network.set_partitioned(&one, &other, is_cut);
        network.set_partitioned(&other, &one, is_cut);
    }

    fn found(
        &mut self,
        step: &Step,
        host: usize,
        backend: SocketAddrV4,
        is_down: bool,
    ) -> Result<(), Diagnostic> {
        let member = self.config.cluster.member_ids()[host].0;
        let mut backends = checked(&self.config);
        backends.retain(|one| SocketAddrV4::new(one.address, one.port) == backend);
        if backends.is_empty() {
            return Err(self
                .failure(step, format!("no host checks a backend {backend} now"))
                .help("a `reload` before took it away, or its service's check"));
        }
        for backend in backends {
            let check_result = CheckResult {
                member,
                backend,
                is_down,
            };
            if !self.alive[host] || !self.fleet.inject(host, 0, CONTROL, &check_result.frame()) {
                let why = format!("{} checks nothing now", self.name(host));
                return Err(self.failure(step, why));
            }
        }
        Ok(())
    }

    fn reload(&mut self, step: &Step, file: &Path) -> Result<(), Diagnostic> {
        let path = files::key_path(self.path, file);
        let text = files::text_of(&path, "the configuration");
        let text = text.map_err(|why| self.failure(step, why.to_string()))?;
        let name = path.display().to_string();
        let (wanted, mut report) =
            Config::read_as(&name, &text, Purpose::Scenario, None, self.functions);
        let Some(wanted) = files::with_files(wanted, &path, &mut report) else {
            let why = reload::first_mistake(&report);
            return Err(self
                .failure(step, "this configuration is refused")
                .help(why.to_string()));
        };
        let now = Written {
            config: &self.config,
            text: &self.text,
        };
        let then = Written {
            config: &wanted,
            text: &text,
        };
        if let Err(refused) = reload::changes(now, then, &name, &|_| true) {
            let failure = self.failure(step, "hosts that run refuse this configuration");
            let refused = refused.iter().map(ToString::to_string);
            return Err(refused.fold(failure, Diagnostic::help));
        }
        let placements = |config: &Config| -> Vec<&'static str> {
            let objects = config.function.objects.iter();
            objects.map(|object| object.placement.word()).collect()
        };
        if placements(&self.config) != placements(&wanted) {
            return Err(self
                .failure(step, "this configuration has objects in other placements")
                .help("hosts of a scenario keep them; `asterism reload` changes those of running hosts"));
        }
        let lanes = wanted.host.instances;
        // One for the hosts that begin later.
        let copies = Copies(&wanted.function.objects, self.alive.len() * lanes + 1);
        let functions = wanted.function.settings.with(copies);
        let functions = functions.map_err(|why| self.failure(step, why.to_string()))?;
        let functions: Option<Vec<_>> = functions.into_iter().map(taken::<F>).collect();
        let Some(mut functions) = functions else {
            return Err(self.failure(step, "this is another function"));
        };
        if let Some(function) = functions.pop() {
            self.fleet.set_function(function);
        }
        for (host, member) in self
            .fleet
            .cluster_mut()
            .members_mut()
            .iter_mut()
            .enumerate()
        {
            for instance in member.instances.iter_mut().filter(|_| self.alive[host]) {
                if let Some(function) = functions.pop() {
                    instance.replace_function(function);
                }
            }
        }
        let firewalls = flows::ending_on_reload(&wanted.function);
        (self.config, self.text) = (wanted, text);
        self.request_stations();
        for host in self.asked(None) {
            for (_, asked) in &firewalls {
                self.end_denied(step, host, *asked)?;
            }
        }
        Ok(())
    }

    /// As a host does that has taken up other rules.
    fn end_denied(&mut self, step: &Step, host: usize, asked: Asked) -> Result<(), Diagnostic> {
        let instance = &self.fleet.cluster().members()[host].instances[0];
        let (mut meant, mut cursor) = (Vec::new(), Some(0));
        while let Some(from) = cursor {
            let mut part = Vec::new();
            let question = asked.question(FLOWS_QUESTION);
            let (function, state) = (instance.function(), instance.state());
            cursor = report_of(function, state, question, (from, PART), &mut part);
            read_records(&part, |known: KnownFlow| {
                flows::collect(&flows::DENIED, &known, &mut meant);
            });
        }
        for frame in flows::frames(&meant) {
            if !self.fleet.inject(host, 0, asked.control(), &frame) {
                let why = format!("{} ends no flows now", self.name(host));
                return Err(self.failure(step, why));
            }
        }
        Ok(())
    }

    // --- what hosts know

    /// Asks each instance of the hosts that are asked, until all say what is wanted; else what one says instead.
    fn all_say(
        &mut self,
        step: &Step,
        until: Time,
        host: Option<usize>,
        ask: impl Fn(&Instance<F>) -> Result<(), ExpectationError>,
    ) -> Result<(), Diagnostic> {
        let hosts = self.asked(host);
        let said = self.until(until, |world| {
            for &host in &hosts {
                for instance in &world.fleet.cluster().members()[host].instances {
                    ask(instance).map_err(|error| (host, error))?;
                }
            }
            Ok(())
        });
        said.map_err(|(host, error)| self.failure(step, format!("{}: {error}", self.name(host))))
    }

    fn table(
        &mut self,
        step: &Step,
        until: Time,
        object: &str,
        count: Count,
        host: Option<usize>,
    ) -> Result<(), Diagnostic> {
        self.all_say(step, until, host, |instance| {
            let entries = instance.entries();
            let live = entries.iter().find(|(name, ..)| *name == object);
            match live.map_or(0, |(_, live, _)| *live as u64) {
                live if count.holds(live) => Ok(()),
                live => Err(ExpectationError::Entries {
                    object: object.to_owned(),
                    live,
                    count,
                }),
            }
        })
    }

    fn metric(
        &mut self,
        step: &Step,
        until: Time,
        name: &str,
        count: Count,
        host: Option<usize>,
    ) -> Result<(), Diagnostic> {
        self.all_say(step, until, host, |instance| {
            let function = instance.function();
            let values = values_of(function, instance.state());
            let place = metrics_of(function).iter().position(|one| one.name == name);
            match place.and_then(|place| values.get(place).copied()) {
                Some(value) if count.holds(value) => Ok(()),
                Some(value) => Err(ExpectationError::Metric {
                    name: name.to_owned(),
                    value,
                    count,
                }),
                None => Err(ExpectationError::NotMeasured(name.to_owned())),
            }
        })
    }

    fn state(&mut self, step: &Step, until: Time) -> Result<(), Diagnostic> {
        let What::State {
            object,
            key,
            value,
            absent,
            host,
        } = &step.what
        else {
            return Ok(());
        };
        self.all_say(step, until, *host, |instance| {
            let found = entries(instance, object, key);
            match (absent, value, found.first()) {
                (true, _, None) => Ok(()),
                (true, _, Some((key, value))) => Err(ExpectationError::Present {
                    key: key.clone(),
                    value: value.clone(),
                }),
                (false, _, None) => Err(ExpectationError::Absent {
                    object: object.clone(),
                    key: key.clone(),
                }),
                (false, None, Some(_)) => Ok(()),
                (false, Some(wanted), Some((_, value))) => {
                    match found.iter().any(|(_, value)| value.contains(wanted)) {
                        true => Ok(()),
                        false => Err(ExpectationError::Value(value.clone())),
                    }
                }
            }
        })
    }

    fn alert(
        &mut self,
        step: &Step,
        until: Time,
        texts: &[String],
        host: Option<usize>,
    ) -> Result<(), Diagnostic> {
        let author = Author {
            host: "test".to_owned(),
            cluster: self.config.cluster.name.clone(),
            members: asterism_epochs::MemberNames::listed(self.config.cluster.members.clone()),
            stages: Vec::new(),
        };
        self.all_say(step, until, host, |instance| {
            let lines = alerts(instance, &author);
            let fits = |line: &String| texts.iter().all(|text| line.contains(text.as_str()));
            match lines.iter().any(fits) {
                true => Ok(()),
                false if lines.is_empty() => Err(ExpectationError::NoAlerts),
                false => {
                    let shown = lines.iter().take(ALERTS_SHOWN_MAX);
                    let shown = shown.map(|line| line.trim_end().to_owned());
                    Err(ExpectationError::OtherAlerts(shown.collect()))
                }
            }
        })
    }
}

/// A function of this type.
fn taken<F: NetworkFunction>(function: Box<dyn Any + Send>) -> Option<Arc<F>> {
    function.downcast::<Arc<F>>().ok().map(|function| *function)
}

/// Entries of an object whose key has a word, with their values.
fn entries<F: NetworkFunction>(
    instance: &Instance<F>,
    object: &str,
    key: &str,
) -> Vec<(String, String)> {
    let names = objects_of(instance.function());
    let Some(object) = names.iter().position(|name| *name == object) else {
        return Vec::new();
    };
    let (mut found, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        cursor = instance.show(object as u8, from, PART, &mut |entry| {
            let text = format!("{:?}", entry.key);
            if has_word(&text, key) {
                found.push((text, format!("{:?}", entry.value)));
            }
        });
    }
    found
}

/// All alerts that an instance knows, as lines of JSON.
fn alerts<F: NetworkFunction>(instance: &Instance<F>, author: &Author) -> Vec<String> {
    let function = instance.function();
    let stages: Vec<_> = stage_names(function)
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    let author = Author {
        stages,
        ..author.clone()
    };
    let (mut lines, mut part) = (Vec::new(), Vec::new());
    for (stage, question) in questions(author.stages.len()).into_iter().enumerate() {
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            part.clear();
            cursor = report_of(
                function,
                instance.state(),
                question,
                (from, PART),
                &mut part,
            );
            let _ = Notice::read_all(&part, |notice| {
                lines.extend(author.alert(&notice, stage, 0));
            });
        }
    }
    lines
}
