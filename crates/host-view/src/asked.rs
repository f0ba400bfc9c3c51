//! The function, or the stage of a chain, that a question is for.

use asterism_config::{Function, Settings};
use asterism_function::chain::Chain;
use asterism_function::{CONTROL, PortNumber};
use asterism_functions::port_scan::{Host, Sources};

/// The addressee of a question: the function, or a stage of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    stage: Option<usize>,
    /// Bits of an IPv6 address by which the function distinguishes the sources that it blocks itself.
    ipv6_prefix: u8,
}

impl Asked {
    /// The function, or in a chain the first stage, for which `is_it` holds.
    pub fn first(settings: &Settings, is_it: impl Fn(&Settings) -> bool) -> Option<Asked> {
        let found = find_function(settings, |settings| is_it(settings).then_some(settings));
        found.map(|(stage, settings)| Asked::of(stage, settings))
    }

    /// The function, or in a chain all stages, for which `is_it` holds, with the name of each.
    pub fn each(function: &Function, is_it: impl Fn(&Settings) -> bool) -> Vec<(String, Asked)> {
        match &function.settings {
            Settings::Chain(chain) => {
                let stages = chain.stages.iter().enumerate();
                let found = stages.filter(|(_, stage)| is_it(&stage.settings));
                let asked = found.map(|(number, stage)| {
                    let asked = Asked::of(Some(number), &stage.settings);
                    (stage.name.to_owned(), asked)
                });
                asked.collect()
            }
            settings if is_it(settings) => {
                vec![(function.name.to_owned(), Asked::of(None, settings))]
            }
            _ => Vec::new(),
        }
    }

    fn of(stage: Option<usize>, settings: &Settings) -> Asked {
        let ipv6_prefix = match settings {
            Settings::PortScan(settings) => settings.ipv6_prefix,
            _ => 128,
        };
        Asked { stage, ipv6_prefix }
    }

    /// The address by which the function blocks an address itself: of IPv6 the first one of its prefix, where sources are prefixes.
    pub fn source_of(self, address: Host) -> Host {
        Sources::new(self.ipv6_prefix, []).one(address)
    }

    /// Each function that blocks.
    pub fn blocking(function: &Function) -> Vec<(String, Asked)> {
        Asked::each(function, |settings| {
            matches!(
                settings,
                Settings::Firewall(_) | Settings::PortScan(_) | Settings::Signature(_)
            )
        })
    }

    /// Each firewall.
    pub fn firewalls(function: &Function) -> Vec<(String, Asked)> {
        Asked::each(function, |settings| {
            matches!(settings, Settings::Firewall(_))
        })
    }

    /// The question in the form that the function gets.
    pub fn question(self, question: u32) -> u32 {
        self.stage
            .and_then(|stage| Chain::question(stage, question))
            .unwrap_or(question)
    }

    /// The port of its control frames.
    pub fn control(self) -> PortNumber {
        self.stage.and_then(Chain::control).unwrap_or(CONTROL)
    }
}

/// The first function that `of` finds something in: its stage, if the function is a chain, and what was found.
pub fn find_function<'a, T>(
    settings: &'a Settings,
    of: impl Fn(&'a Settings) -> Option<T>,
) -> Option<(Option<usize>, T)> {
    match settings {
        Settings::Chain(chain) => {
            let mut stages = chain.stages.iter().enumerate();
            stages.find_map(|(number, stage)| Some((Some(number), of(&stage.settings)?)))
        }
        settings => Some((None, of(settings)?)),
    }
}
