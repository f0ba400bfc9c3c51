//! The services of a function, their pools, and tables that are computed once from them.

use core::net::Ipv4Addr;

use asterism_function::objects::hash;
use asterism_function::{Endpoint, Protocol};

use crate::maglev::Maglev;
use crate::service::{Backend, Service};

/// Places of the vector of usage for each backend that there may be, so that they rarely move when pools change.
const PLACES_EACH: u32 = 4;
/// Different backends that one function may have at most: places have numbers of 16 bits.
pub const BACKENDS_MOST: usize = (1 << 16) / PLACES_EACH as usize;

/// All services of a function.
#[derive(Debug)]
pub struct Pools {
    /// In the order of their endpoints.
    pools: Vec<Pool>,
    /// Addresses of backends, in order.
    answering: Vec<Ipv4Addr>,
    /// What is checked, in order.
    checked: Vec<Endpoint>,
    watches_udp: bool,
    watches_flows: bool,
}

/// A service with what follows from it. Its backends go by their place in its list.
#[derive(Debug)]
pub struct Pool {
    service: Service,
    pub(crate) table: Maglev,
    /// Of each backend, its place in the vector of usage.
    places: Vec<u16>,
}

impl Pools {
    /// The pools of services of which no two [overlap](Service::overlaps), with at most so many different backends together
    /// as the state has room for ([`tables`](crate::tables)); else how many they have. Makes a table of 128 KiB for each; for set-up.
    ///
    /// # Panics
    /// With `backends_max` beyond [`BACKENDS_MOST`].
    pub fn new(services: &[Service], backends_max: usize) -> Result<Self, usize> {
        assert!(backends_max <= BACKENDS_MOST, "too many backends");
        let all = || {
            let services = services.iter();
            services.flat_map(|service| service.backends.iter().map(move |one| (service, one)))
        };
        let mut named: Vec<Endpoint> = all()
            .map(|(service, one)| service.checked_at(one))
            .collect();
        named.sort_unstable();
        named.dedup();
        if named.len() > backends_max {
            return Err(named.len());
        }
        let places = places(&named, usage_places(backends_max));
        let mut pools: Vec<Pool> = services
            .iter()
            .map(|service| Pool::new(service, &named, &places))
            .collect();
        pools.sort_unstable_by_key(Pool::name);
        let mut answering: Vec<_> = all().map(|(_, one)| one.address).collect();
        let mut checked: Vec<_> = all()
            .filter(|(service, _)| service.checked)
            .map(|(service, one)| service.checked_at(one))
            .collect();
        answering.sort_unstable();
        checked.sort_unstable();
        Ok(Self {
            pools,
            answering,
            watches_flows: services.iter().any(|service| service.passive > 0),
            watches_udp: checked.iter().any(|one| one.protocol == Protocol::UDP),
            checked,
        })
    }

    /// The pool that has an endpoint. Costs a search among the services.
    #[inline]
    #[must_use]
    pub fn of(&self, asked: Endpoint) -> Option<&Pool> {
        let later = self.pools.partition_point(|pool| pool.name() <= asked);
        let pool = &self.pools[later.checked_sub(1)?];
        pool.service.has(asked).then_some(pool)
    }

    /// All pools, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter()
    }

    /// Whether an address is that of some backend.
    #[inline]
    #[must_use]
    pub fn is_backend(&self, address: Ipv4Addr) -> bool {
        self.answering.binary_search(&address).is_ok()
    }

    /// Whether hosts check a backend, which goes by [`Service::checked_at`].
    #[must_use]
    pub fn checks(&self, backend: Endpoint) -> bool {
        self.checked.binary_search(&backend).is_ok()
    }

    /// Whether some UDP service is checked: packets of known flows must look whether their backend lives.
    #[inline(always)]
    #[must_use]
    pub fn watches_udp(&self) -> bool {
        self.watches_udp
    }

    /// Whether what becomes of flows says something of some service's backends.
    #[inline(always)]
    #[must_use]
    pub fn watches_flows(&self) -> bool {
        self.watches_flows
    }

    /// The place of a backend in the vector of usage, as [`Service::checked_at`] names it. For set-up.
    #[must_use]
    pub fn usage_place(&self, backend: Endpoint) -> Option<u32> {
        self.pools.iter().find_map(|pool| {
            let is_it = |one| pool.service.checked_at(one) == backend;
            let number = pool.service.backends.iter().position(is_it)?;
            Some(pool.usage_place(number).into())
        })
    }
}

impl Pool {
    fn new(service: &Service, named: &[Endpoint], places: &[u16]) -> Self {
        let weighted: Vec<(u64, u32)> = service
            .backends
            .iter()
            .map(|one| {
                let weight = if one.drains { 0 } else { one.weight };
                (service.checked_at(one).to_bits(), weight)
            })
            .collect();
        let place_of = |one| {
            let found = named.binary_search(&service.checked_at(one));
            found.map_or(0, |number| places[number])
        };
        Self {
            table: Maglev::new(&weighted),
            places: service.backends.iter().map(place_of).collect(),
            service: service.clone(),
        }
    }

    /// The service.
    #[inline]
    #[must_use]
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// What the service goes by in the state: its first endpoint.
    #[inline]
    #[must_use]
    pub fn name(&self) -> Endpoint {
        self.service.first()
    }

    /// Its backends.
    #[inline]
    #[must_use]
    pub fn backends(&self) -> &[Backend] {
        &self.service.backends
    }

    /// The place of a backend in the vector of usage.
    #[inline]
    #[must_use]
    pub fn usage_place(&self, number: usize) -> u16 {
        self.places[number]
    }

    /// What a backend goes by in the state.
    #[inline]
    #[must_use]
    pub fn backend_name(&self, number: usize) -> Endpoint {
        self.service.checked_at(&self.service.backends[number])
    }
}

/// How many places the vector of usage has for so many backends.
pub(crate) const fn usage_places(backends_max: usize) -> u32 {
    PLACES_EACH * backends_max as u32
}

/// A place of the vector of usage for each backend, by a hash of its name and the next free one: the same on all hosts, and
/// hardly ever another one when pools change. The names are in order.
fn places(named: &[Endpoint], count: u32) -> Vec<u16> {
    let mut taken = vec![false; count as usize];
    let place = |name: &Endpoint| {
        let mut place = (hash::word(name.to_bits(), 0) % u64::from(count)) as usize;
        while core::mem::replace(&mut taken[place], true) {
            place = (place + 1) % count as usize;
        }
        place as u16
    };
    named.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(last: u8, port: u16) -> Endpoint {
        Endpoint::new([10, 0, 0, last].into(), port, Protocol::TCP)
    }

    fn service(last: u8, ports: (u16, u16), backends: &[u8]) -> Service {
        let backends = backends
            .iter()
            .map(|last| Backend::new([10, 0, 1, *last].into(), 0))
            .collect();
        Service {
            ports,
            ..Service::new(end(last, ports.0), backends)
        }
    }

    #[test]
    fn a_pool_is_found_by_what_is_asked_for() {
        let services = [
            service(2, (80, 80), &[1]),
            service(1, (8_000, 8_010), &[2]),
            service(1, (80, 90), &[1, 2]),
        ];
        let pools = Pools::new(&services, 16).unwrap();
        let found = |last, port| pools.of(end(last, port)).map(Pool::name);
        assert_eq!(found(1, 80), Some(end(1, 80)));
        assert_eq!(found(1, 90), Some(end(1, 80)));
        assert_eq!(found(1, 8_005), Some(end(1, 8_000)));
        assert_eq!(found(2, 80), Some(end(2, 80)));
        for (last, port) in [(1, 79), (1, 91), (1, 8_011), (2, 81), (0, 80), (3, 80)] {
            assert_eq!(found(last, port), None, "{last} {port}");
        }
        let udp = Endpoint {
            protocol: Protocol::UDP,
            ..end(1, 80)
        };
        assert!(pools.of(udp).is_none());
        assert!(pools.is_backend([10, 0, 1, 2].into()) && !pools.is_backend([10, 0, 1, 3].into()));
        let names: Vec<_> = pools.iter().map(Pool::name).collect();
        assert_eq!(names, [end(1, 80), end(1, 8_000), end(2, 80)]);
    }

    #[test]
    fn backends_that_are_known_by_one_name_have_one_place_and_others_another() {
        let services = [
            service(1, (80, 80), &[1, 2, 3]),
            service(2, (80, 80), &[3, 4]),
        ];
        let pools = Pools::new(&services, 4).unwrap();
        let place =
            |last| pools.usage_place(Endpoint::new([10, 0, 1, last].into(), 80, Protocol::TCP));
        let mut places: Vec<_> = (1..=4).map(|last| place(last).unwrap()).collect();
        assert!(places.iter().all(|place| *place < usage_places(4)));
        assert_eq!(
            pools.of(end(2, 80)).unwrap().usage_place(0),
            places[2] as u16
        );
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 4);
        assert_eq!(place(5), None);
        assert_eq!(Pools::new(&services, 3).err(), Some(4));
    }

    #[test]
    fn what_is_watched_is_known() {
        let mut services = [service(1, (53, 53), &[1]), service(2, (80, 80), &[2])];
        let pools = Pools::new(&services, 16).unwrap();
        assert!(!pools.watches_udp() && !pools.watches_flows());
        services[0].protocol = Protocol::UDP;
        services[0].checked = true;
        services[1].passive = 3;
        let pools = Pools::new(&services, 16).unwrap();
        assert!(pools.watches_udp() && pools.watches_flows());
        let at = |last, port, protocol| Endpoint::new([10, 0, 1, last].into(), port, protocol);
        assert!(pools.checks(at(1, 53, Protocol::UDP)));
        assert!(!pools.checks(at(2, 80, Protocol::TCP)));
    }
}
