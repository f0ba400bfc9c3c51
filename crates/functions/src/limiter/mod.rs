//! Limits the traffic of sources, destinations, services and tenants, over all instances together.
//!
//! Each limit is a token bucket for each key, from which all instances spend. A packet passes if all its buckets have the
//! tokens that it costs, and then spends from all of them; else it is dropped and spends from none. [`Spending`] gives the
//! bound on the instances' joint spending; `tenant.rs` finds a packet's tenant, `metrics.rs` has the metrics.

mod metrics;
mod tenant;

use asterism_function::objects::hash;
use asterism_function::{
    Ask, Builder, Counter, Host, Key, Late, NetworkFunction, Observable, OwnMetric, PortNumber,
    Rates, Reason, Spending, TokenBucket, TokenRate, TokenRates, Tokens, Verdict, Wire, state,
};

use crate::monitor::Flow;
use crate::mutant::{self, Mutant};

pub use tenant::{TENANTS_MAX, Tenants, TooManyTenants};

/// What instances of a limiter share.
#[state]
pub struct LimiterState {
    /// A bucket for each source.
    pub sources: TokenBucket<Host>,
    /// A bucket for each destination.
    pub destinations: TokenBucket<Host>,
    /// A bucket for each service.
    pub services: TokenBucket<Service>,
    /// A bucket for each tenant, by its number.
    pub tenants: TokenBucket<u16, TokenRates<u16>>,
    /// Packets that belonged to a bucket for which there was no room, and were dropped.
    pub without_room: Counter,
}

/// Where a packet goes: an address, a port and a transport protocol. Port 0 where there is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub struct Service {
    /// The host.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// The number of the transport protocol (IANA).
    pub protocol: u8,
}

impl Key for Service {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        let port = u64::from(self.protocol) << 16 | u64::from(self.port);
        hash::words(self.host.hash(seed), port, seed)
    }
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Unit {
    /// Bytes of IP packets, headers included.
    #[default]
    Bytes,
    /// Packets.
    Packets,
}

/// How much each key of a kind may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    /// What is counted.
    pub unit: Unit,
    /// What is let through: so many a second, and so many at once. For bytes, a packet longer than the burst never passes; with
    /// [`Spending::Escrow`], none that is longer than an instance's share of it.
    pub rate: TokenRate,
}

/// Which packets are limited; others pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum From {
    /// Those that come in by the first port.
    Inside,
    /// Those that come in by the second.
    Outside,
    /// All.
    #[default]
    Both,
}

/// What an operator chooses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimiterConfig {
    /// Which packets are limited.
    pub from: From,
    /// How instances spend from one bucket: [`Spending::Escrow`] never lets more through, whatever is delayed or lost;
    /// [`Spending::Approximate`] lets the rate through wherever the packets come.
    pub spending: Spending,
    /// For each source.
    pub sources: Option<Limit>,
    /// For each destination.
    pub destinations: Option<Limit>,
    /// For each service.
    pub services: Option<Limit>,
    /// For each tenant that has no rate of its own, and what is counted of all.
    pub tenant: Option<Limit>,
    /// The rates of tenants that have their own, by number. They limit nobody if `tenant` is `None`.
    pub tenant_rates: Vec<(u16, TokenRate)>,
    /// Whose a packet is.
    pub tenants: Tenants,
    /// Sources, destinations and services at most, each. When there is no room for another one, its packets are dropped.
    /// Default 16,384.
    pub keys_max: u32,
}

impl Default for LimiterConfig {
    fn default() -> Self {
        Self {
            from: From::Both,
            spending: Spending::Approximate,
            sources: None,
            destinations: None,
            services: None,
            tenant: None,
            tenant_rates: Vec::new(),
            tenants: Tenants::default(),
            keys_max: 1 << 14,
        }
    }
}

/// The function: forwards from its first port to its second and back what keeps to the limits.
#[derive(Clone, Debug, Default)]
pub struct Limiter {
    config: LimiterConfig,
}

/// A bucket of which nobody spends.
const UNUSED: TokenRate = TokenRate {
    tokens_per_second: 1 << 20,
    burst_tokens: 1 << 20,
};

impl Limiter {
    /// A limiter. A burst of fewer tokens than there are instances is refused when the state is made, where spending is
    /// [`Spending::Escrow`].
    #[must_use]
    pub fn new(config: LimiterConfig) -> Self {
        Self { config }
    }

    /// What the operator chose.
    #[must_use]
    pub fn config(&self) -> &LimiterConfig {
        &self.config
    }

    /// Of tenants, by number.
    fn tenant_rates(&self) -> TokenRates<u16> {
        let LimiterConfig {
            tenant,
            tenant_rates,
            ..
        } = &self.config;
        match tenant {
            Some(limit) => TokenRates::new(limit.rate, tenant_rates.iter().copied()),
            None => TokenRates::new(UNUSED, []),
        }
    }

    #[inline(always)]
    fn limits(&self, port: PortNumber) -> bool {
        match self.config.from {
            From::Both => true,
            From::Inside => port.0 == 0,
            From::Outside => port.0 == 1,
        }
    }
}

/// What a bucket says to a packet.
enum Answer<K> {
    /// It has no say.
    Free,
    /// It has the tokens.
    Has(Tokens<K>),
    /// It has too few.
    Lacks,
    /// There is no such bucket, and no room for it.
    NoRoom,
}

impl<K: Key> Answer<K> {
    #[inline(always)]
    fn of<R: Rates<K>>(
        bucket: &TokenBucket<K, R>,
        limit: Option<Limit>,
        key: Option<K>,
        bytes: u64,
    ) -> Result<Self, Late> {
        let (Some(limit), Some(key)) = (limit, key) else {
            return Ok(Self::Free);
        };
        let cost = match limit.unit {
            Unit::Bytes => bytes,
            Unit::Packets => 1,
        };
        if let Some(tokens) = bucket.tokens(&key, cost)? {
            return Ok(Self::Has(tokens));
        }
        // One that is not there and would be full was refused for its room.
        Ok(if bucket.available(&key)? >= cost {
            Self::NoRoom
        } else {
            Self::Lacks
        })
    }

    #[inline(always)]
    fn refuses(&self) -> Option<Reason> {
        match self {
            Self::Free | Self::Has(_) => None,
            Self::Lacks => Some(Reason::RateLimited),
            Self::NoRoom => Some(Reason::TableFull),
        }
    }
}

impl NetworkFunction for Limiter {
    type State = LimiterState;

    fn state(&self, builder: &Builder) -> LimiterState {
        let config = &self.config;
        let keys = |limit: Option<Limit>| limit.map_or(1, |_| config.keys_max);
        let rate = |limit: Option<Limit>| limit.map_or(UNUSED, |limit| limit.rate);
        let spending = config.spending;
        // Any instance may be the first to see any tenant, and each may begin its share of them.
        let (_, instances) = builder.context().identity().share();
        let tenants = (config.tenants.count().max(1)).saturating_mul(instances);
        LimiterState {
            sources: builder.token_bucket(
                "sources",
                keys(config.sources),
                rate(config.sources),
                spending,
            ),
            destinations: builder.token_bucket(
                "destinations",
                keys(config.destinations),
                rate(config.destinations),
                spending,
            ),
            services: builder.token_bucket(
                "services",
                keys(config.services),
                rate(config.services),
                spending,
            ),
            tenants: builder.token_bucket("tenants", tenants, self.tenant_rates(), spending),
            without_room: builder.counter("without_room"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, LimiterState>) -> Result<Verdict, Late> {
        let config = &self.config;
        let out = PortNumber(ask.port().0 ^ 1);
        let flow = Flow::of(ask.packet());
        let (Some(flow), true) = (flow, self.limits(ask.port())) else {
            return Ok(Verdict::Forward(out));
        };
        let layout = ask.packet().layout();
        let bytes = layout.end().saturating_sub(layout.network_offset()) as u64;
        let service = Service {
            host: flow.destination,
            port: flow.destination_port,
            protocol: flow.protocol,
        };
        let tenant = match config.tenant {
            Some(_) => config.tenants.of(&flow),
            None => None,
        };
        let hosts = ask.all((
            Answer::of(&ask.sources, config.sources, Some(flow.source), bytes),
            Answer::of(
                &ask.destinations,
                config.destinations,
                Some(flow.destination),
                bytes,
            ),
        ));
        let others = ask.all((
            Answer::of(&ask.services, config.services, Some(service), bytes),
            Answer::of(&ask.tenants, config.tenant, tenant, bytes),
        ));
        let ((source, destination), (service, tenant)) = ask.all((hosts, others))?;
        let refusals = [
            source.refuses(),
            destination.refuses(),
            service.refuses(),
            tenant.refuses(),
        ];
        if let Some(reason) = refusals.into_iter().flatten().next() {
            if reason == Reason::TableFull {
                ask.act()?.without_room.add(1);
            }
            return Ok(Verdict::Drop(reason));
        }
        let mut act = ask.act()?;
        if let Answer::Has(tokens) = source {
            act.sources.spend(tokens);
        }
        if let Answer::Has(tokens) = destination
            && !mutant::active(Mutant::SecondBucketFree)
        {
            act.destinations.spend(tokens);
        }
        if let Answer::Has(tokens) = service {
            act.services.spend(tokens);
        }
        if let Answer::Has(tokens) = tenant {
            act.tenants.spend(tokens);
        }
        Ok(Verdict::Forward(out))
    }

    fn observable(&self) -> Option<&dyn Observable<LimiterState>> {
        Some(self)
    }

    fn schema(&self) -> u64 {
        let config = &self.config;
        let limits = [
            config.sources,
            config.destinations,
            config.services,
            config.tenant,
        ];
        let of = |limit: Option<Limit>| {
            limit.map_or(0, |Limit { unit, rate }| {
                let unit = u64::from(unit == Unit::Packets) + 1;
                hash::words(rate.tokens_per_second, rate.burst_tokens, unit)
            })
        };
        let exact = u64::from(config.spending == Spending::Escrow);
        let limits = limits
            .into_iter()
            .fold(exact, |sum, limit| hash::words(sum, of(limit), 0));
        let whole = hash::words(limits, config.tenants.digest(), 0);
        let own = self.tenant_rates();
        own.own().iter().fold(whole, |sum, (tenant, rate)| {
            let of = hash::words(rate.tokens_per_second, rate.burst_tokens, 0);
            hash::words(of, u64::from(*tenant), sum)
        })
    }
}

impl Observable<LimiterState> for Limiter {
    fn metrics(&self) -> &[OwnMetric] {
        &metrics::METRICS
    }

    fn measure(&self, state: &LimiterState, values: &mut Vec<u64>) {
        state.measure(values);
    }
}
