//! A small model of a cluster: hosts with a capacity that take time to start, fail to, die and drain; a load that is spread
//! evenly or by buckets; and samples that get lost, old and absurd.

use asterism_elasticity::{Action, BucketLoad, Decision, Elasticity, HostSample, Standing, UnixMs};

/// Monday 2026-11-30, 08:00 UTC.
pub(crate) const BEGIN: UnixMs = UnixMs(1_795_996_800_000 + 8 * 3_600_000);

/// A generator of numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// A host of the model.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) standing: Standing,
    pub(crate) since: UnixMs,
    /// When its present standing ends.
    ends: Option<UnixMs>,
    /// Whether its launch fails at its end.
    fails: bool,
    /// When it appears among the samples.
    visible: UnixMs,
    /// Buckets that are steered to it.
    pub(crate) buckets: Vec<usize>,
    /// When its samples were last fresh.
    reported: UnixMs,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// One launch in so many fails; 0: none.
    pub(crate) launch: u64,
    /// A host dies once in so many seconds; 0: none.
    pub(crate) death: u64,
    /// One sample in so many is lost or absurd; 0: none.
    pub(crate) sample: u64,
    /// All samples are lost at once, once in so many seconds; 0: never.
    pub(crate) link: u64,
}

/// The cluster.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) numbers: Numbers,
    pub(crate) now: UnixMs,
    pub(crate) hosts: Vec<Host>,
    /// The weight of each bucket; empty where load is spread evenly.
    pub(crate) weights: Vec<u64>,
    /// Packets/s that one host carries.
    pub(crate) capacity: u64,
    pub(crate) faults: Faults,
    /// Until when no sample arrives.
    link_down_until: UnixMs,
    launched: u64,
}

impl World {
    pub(crate) fn new(seed: u64, hosts: u32, capacity: u64, weights: Vec<u64>) -> World {
        let mut world = World {
            numbers: Numbers(seed),
            now: BEGIN,
            hosts: Vec::new(),
            weights,
            capacity,
            faults: Faults::default(),
            link_down_until: UnixMs(0),
            launched: 0,
        };
        for _ in 0..hosts {
            let name = world.name();
            world.hosts.push(Host {
                name,
                standing: Standing::Serving,
                since: BEGIN,
                ends: None,
                fails: false,
                visible: BEGIN,
                buckets: Vec::new(),
                reported: BEGIN,
            });
        }
        for bucket in 0..world.weights.len() {
            let host = bucket % world.hosts.len().max(1);
            if let Some(host) = world.hosts.get_mut(host) {
                host.buckets.push(bucket);
            }
        }
        world
    }

    /// What was to happen later than now happens now.
    pub(crate) fn clock_went_back(&mut self, now: UnixMs) {
        self.now = now;
        self.link_down_until = self.link_down_until.min(now);
        for host in &mut self.hosts {
            host.since = host.since.min(now);
            host.reported = host.reported.min(now);
            host.visible = host.visible.min(now);
        }
    }

    /// One more host serves, without buckets.
    pub(crate) fn join(&mut self) {
        let name = self.name();
        let Some(mut host) = self.hosts.first().cloned() else {
            return;
        };
        host.name = name;
        host.buckets.clear();
        self.hosts.push(host);
    }

    fn name(&mut self) -> String {
        self.launched += 1;
        format!("h{:03}", self.launched)
    }

    fn after(&self, seconds: u64) -> UnixMs {
        UnixMs(self.now.0 + 1_000 * seconds)
    }

    pub(crate) fn count(&self, standing: Standing) -> usize {
        let all = self.hosts.iter();
        all.filter(|host| host.standing == standing).count()
    }

    /// One second passes: launches end, hosts die and leave. Launches that ended are reported; the result has whether each
    /// succeeded.
    pub(crate) fn pass(&mut self, elasticity: &mut Elasticity) -> Vec<bool> {
        self.now = self.after(1);
        let now = self.now;
        let mut gone = Vec::new();
        let mut launches = Vec::new();
        for place in 0..self.hosts.len() {
            let host = &mut self.hosts[place];
            if host.ends.is_none_or(|ends| ends > now) {
                continue;
            }
            host.ends = None;
            match host.standing {
                Standing::Starting if host.fails => {
                    elasticity.launch_failed(now);
                    launches.push(false);
                    gone.push(host.name.clone());
                }
                Standing::Starting => {
                    host.standing = Standing::Serving;
                    host.since = now;
                    host.reported = now;
                    elasticity.launch_succeeded();
                    launches.push(true);
                }
                _ => gone.push(host.name.clone()),
            }
        }
        self.hosts.retain(|host| !gone.contains(&host.name));
        let (death, link) = (self.faults.death, self.faults.link);
        if death > 0 && self.numbers.one_in(death) && !self.hosts.is_empty() {
            let place = self.numbers.below(self.hosts.len() as u64) as usize;
            let suspected = self.numbers.between(1, 20);
            let ends = self.after(suspected);
            let host = &mut self.hosts[place];
            if host.standing == Standing::Serving {
                host.standing = Standing::Suspected;
                host.since = now;
                host.ends = Some(ends);
            }
        }
        if link > 0 && self.numbers.one_in(link) {
            let seconds = self.numbers.between(1, 40);
            self.link_down_until = self.after(seconds);
        }
        self.steer_orphans();
        launches
    }

    /// Buckets of hosts that do not serve go to others in turn.
    fn steer_orphans(&mut self) {
        let mut orphans = Vec::new();
        let mut here = vec![false; self.weights.len()];
        for host in &mut self.hosts {
            match host.standing {
                Standing::Serving => host.buckets.iter().for_each(|bucket| here[*bucket] = true),
                _ => host.buckets.clear(),
            }
        }
        orphans.extend((0..here.len()).filter(|bucket| !here[*bucket]));
        let mut serving: Vec<&mut Host> = self
            .hosts
            .iter_mut()
            .filter(|host| host.standing == Standing::Serving)
            .collect();
        let count = serving.len();
        for (turn, bucket) in orphans.into_iter().enumerate().filter(|_| count > 0) {
            serving[turn % count].buckets.push(bucket);
        }
    }

    /// Carries out what was decided.
    pub(crate) fn act(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            match &decision.action {
                Action::ScaleOut { count } => (0..*count).for_each(|_| self.launch()),
                Action::ScaleIn { host, drain } => {
                    let ends = UnixMs(self.now.0 + drain.0);
                    let (now, host) = (self.now, self.host(host));
                    host.standing = Standing::Draining;
                    host.since = now;
                    host.ends = Some(ends);
                    self.steer_orphans();
                }
                Action::MoveBuckets { from, to, buckets } => {
                    for bucket in buckets {
                        let bucket = *bucket as usize;
                        let own = &mut self.host(from).buckets;
                        let place = own.iter().position(|one| *one == bucket);
                        own.remove(place.expect("the bucket is there"));
                        self.host(to).buckets.push(bucket);
                    }
                }
                Action::Hold => {}
            }
        }
    }

    fn host(&mut self, name: &str) -> &mut Host {
        let mut all = self.hosts.iter_mut();
        all.find(|host| host.name == name)
            .expect("a host that is there")
    }

    fn launch(&mut self) {
        let name = self.name();
        let fails = self.faults.launch > 0 && self.numbers.one_in(self.faults.launch);
        let (takes, unseen) = (self.numbers.between(1, 15), self.numbers.below(4));
        self.hosts.push(Host {
            name,
            standing: Standing::Starting,
            since: self.now,
            ends: Some(self.after(takes)),
            fails,
            visible: self.after(unseen.min(takes)),
            buckets: Vec::new(),
            reported: self.now,
        });
    }

    /// Packets/s of each bucket at a load.
    pub(crate) fn bucket_loads(&self, load: u64) -> Vec<u64> {
        let sum: u64 = self.weights.iter().sum();
        let share = |weight: &u64| load * weight / sum.max(1);
        self.weights.iter().map(share).collect()
    }

    /// Packets/s of each host at a load, without noise.
    pub(crate) fn host_loads(&self, load: u64) -> Vec<u64> {
        let serving = self.count(Standing::Serving) as u64;
        let buckets = self.bucket_loads(load);
        let own = |host: &Host| match host.standing {
            Standing::Serving if buckets.is_empty() => load / serving.max(1),
            Standing::Serving => host.buckets.iter().map(|bucket| buckets[*bucket]).sum(),
            _ => 0,
        };
        self.hosts.iter().map(own).collect()
    }

    /// What is known of the hosts at a load.
    pub(crate) fn samples(&mut self, load: u64) -> Vec<HostSample> {
        let loads = self.host_loads(load);
        let buckets = self.bucket_loads(load);
        let mut samples = Vec::new();
        let link_is_down = self.now < self.link_down_until;
        for (place, own) in loads.into_iter().enumerate() {
            let is_lost = self.faults.sample > 0 && self.numbers.one_in(self.faults.sample);
            let host = &mut self.hosts[place];
            if host.visible > self.now {
                continue;
            }
            let mut sample = HostSample::unknown(&host.name, host.standing, host.since);
            if host.standing == Standing::Starting {
                samples.push(sample);
                continue;
            }
            if !is_lost && !link_is_down && host.standing != Standing::Suspected {
                host.reported = self.now;
            }
            sample.age_ms = Some(self.now.0 - host.reported.0);
            let used = (own * 1_000 / self.capacity).min(1_000);
            sample.packets_per_second = Some(own);
            sample.cpu_permille = Some(used);
            sample.flows = Some(own / 10);
            // A queue: twice as long at half of the idle share.
            sample.latency_99_us = Some(100_000 / (1_001 - used).max(10));
            sample.lag_us = Some(1_000);
            sample.capacity_packets_per_second = Some(self.capacity);
            if !self.weights.is_empty() {
                let own = host.buckets.iter().map(|bucket| BucketLoad {
                    bucket: *bucket as u32,
                    packets_per_second: buckets[*bucket],
                });
                sample.buckets = Some(own.collect());
            }
            if self.faults.sample > 0 && self.numbers.one_in(4 * self.faults.sample) {
                spoil(&mut sample, self.numbers.next());
            }
            samples.push(sample);
        }
        samples
    }
}

/// Makes figures missing or absurd.
fn spoil(sample: &mut HostSample, how: u64) {
    let absurd = Some(0_u64.wrapping_sub(how % 1_000 + 1));
    match how % 5 {
        0 => sample.packets_per_second = absurd,
        1 => sample.packets_per_second = None,
        2 => {
            sample.packets_per_second = absurd;
            sample.cpu_permille = absurd;
            sample.flows = absurd;
            sample.latency_99_us = absurd;
        }
        3 => {
            sample.packets_per_second = None;
            sample.cpu_permille = None;
            sample.flows = None;
            sample.latency_99_us = None;
        }
        _ => sample.age_ms = Some(u64::MAX - 1),
    }
}
