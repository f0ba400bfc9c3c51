//! The network function that the simulator runs: it does what packets tell it, to one object of every kind.
//!
//! A packet is a [`Command`]. Every command that writes also adds a *token* of its own to a set that never
//! forgets, in the same call and so in the same group: who holds the token has applied the group. What a
//! call did is noted beside the state ([`Done`]); that is an output for the oracle, which no call reads.

use core::cell::RefCell;
use core::cmp::Ordering;

use asterism_function::{
    Ask, BiMap, Bloom, Builder, CountMin, Counter, Counters, CountingBloom, Flow4, Graph, Late,
    Map, NetworkFunction, Pool, PortNumber, Reason, Register, Set, Spending, Tick, TokenBucket,
    TokenRate, TopK, Value, Vector, Verdict, Window, WindowedCountMin, WindowedCounters, Wire,
    build, state,
};

use crate::ports::{Ports, SHELVES};
use crate::recorded::Recorded;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Verb {
    /// Adds its token, and counts.
    Note,
    /// Writes a value of which concurrent ones do not join.
    Write,
    /// Removes such a value.
    Erase,
    /// Uses such a value.
    Use,
    /// Writes a value of which concurrent ones join.
    Join,
    /// Opens a session of a client on an outside port from the pool, or uses the one there is.
    Open,
    /// Ends a client's session.
    Close,
    /// Uses the session behind an outside port.
    Reply,
    /// Adds to a set whose members idle out.
    Ban,
    /// Takes from it.
    Unban,
    /// Writes a register of which one value wins.
    Elect,
    /// Raises a register that joins.
    Raise,
    /// Adds to the counter of a key, a place's load, sketches, an edge, windows and the heaviest keys.
    Tally,
    /// Reads what may be late, then writes it.
    Visit,
    /// Pairs a key with one that only the token decides: both sides may be taken already.
    Pair,
    /// Many writes, so that one call needs several groups.
    Bulk,
    /// Puts a key into a filter, once more if it is in it.
    Admit,
    /// Takes a key out once that was put in, by whichever member.
    Dismiss,
    /// Spends from a bucket of tokens, if it has as many.
    Spend,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Verb; 19] = [
        Verb::Note,
        Verb::Write,
        Verb::Erase,
        Verb::Use,
        Verb::Join,
        Verb::Open,
        Verb::Close,
        Verb::Reply,
        Verb::Ban,
        Verb::Unban,
        Verb::Elect,
        Verb::Raise,
        Verb::Tally,
        Verb::Visit,
        Verb::Pair,
        Verb::Bulk,
        Verb::Admit,
        Verb::Dismiss,
        Verb::Spend,
    ];
}

/// What a packet tells the function to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// What to do.
    pub verb: Verb,
    /// The client, key or port that it is done to.
    pub key: u16,
    /// A number that no other command has.
    pub token: u32,
}

impl Command {
    /// The packet that says it. Commands of one verb and key are one flow.
    pub fn packet(&self) -> Vec<u8> {
        let mut out = vec![0; 64];
        let flow = Flow4 {
            source: [10, 0, 0, 1].into(),
            destination: [192, 0, 2, 1].into(),
            source_port: self.key,
            destination_port: 1_000 + self.verb as u16,
            protocol: 17,
        };
        let length =
            build::flow4(&flow, &self.token.to_be_bytes(), &mut out).expect("64 bytes hold it");
        // Padded as Ethernet does: a shorter one is no plain packet.
        out.truncate(length.max(60));
        out
    }

    pub(crate) fn read(payload: &[u8], flow: &Flow4) -> Option<Self> {
        let verb = *Verb::ALL.get(usize::from(flow.destination_port.checked_sub(1_000)?))?;
        let token = payload.get(..4)?;
        Some(Self {
            verb,
            key: flow.source_port,
            token: u32::from_be_bytes(token.try_into().ok()?),
        })
    }
}

/// What a call did, once it acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The command.
    pub command: Command,
    /// When its packet came, by the clock of the instance.
    pub arrived: Tick,
    /// The key of the entry that it was given, if it asked for one and there was one.
    pub given: Option<u16>,
    /// Whether it found what it was about.
    pub found: bool,
    /// The value that was there, for those that write or remove values.
    pub before: Option<u32>,
    /// The port, for those about sessions.
    pub port: Option<u16>,
    /// The port was taken from the pool by this call.
    pub granted: bool,
}

/// A value of which the later one wins: the token of the command that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Winner(pub u32);

impl Value for Winner {
    fn order(&self, other: &Self) -> Ordering {
        // By a part of the value first, so that both the caller's order and the stamp decide often.
        (self.0 & 1).cmp(&(other.0 & 1))
    }
    fn idle_class(&self) -> u8 {
        (self.0 >> 1 & 1) as u8
    }
}

/// A value that joins: bits seen, and the greatest number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire, Value)]
pub struct Joined {
    /// One bit for each of 32 kinds of command.
    #[join(or)]
    pub bits: u32,
    /// The greatest token.
    #[join(max)]
    pub most: u32,
}

impl Joined {
    /// What a command with this token contributes.
    pub fn of(token: u32) -> Self {
        Self {
            bits: 1 << (token % 31),
            most: token,
        }
    }
}

/// The function's state: every kind of object.
#[state]
pub struct Exercised {
    /// Tokens of all writing commands, never forgotten.
    pub tokens: Set<u32>,
    /// Values of which one wins; they idle out.
    pub winners: Map<u16, Winner>,
    /// Values that join; for ever.
    pub joined: Map<u16, Joined>,
    /// Sessions: client and outside port, unique both ways.
    pub sessions: BiMap<u16, u16, Joined>,
    /// Outside ports.
    pub ports: Pool<Ports>,
    /// A set whose members idle out.
    pub banned: Set<u16>,
    /// One value that wins.
    pub elected: Register<Winner>,
    /// One value that joins.
    pub raised: Register<Joined>,
    /// Writing commands.
    pub commands: Counter,
    /// By key.
    pub tallies: Counters<u16>,
    /// Entries whose reads may be late.
    pub visited: Map<u16, Joined>,
    /// Pairs that no lease keeps apart.
    pub pairs: BiMap<u16, u16>,
    /// By place, rising and falling.
    pub loads: Vector,
    /// By key, estimated.
    pub volumes: CountMin<u16>,
    /// Keys that were counted.
    pub counted: Bloom<u16>,
    /// From keys to what tokens say; for ever.
    pub talk: Graph<u16>,
    /// By key, over the last while.
    pub recent: WindowedCounters<u16>,
    /// The keys for which most was added.
    pub heavy: TopK<u16>,
    /// Keys that were put in more often than taken out.
    pub admitted: CountingBloom<u16>,
    /// By key, over the last [`SURGE_WINDOW`], estimated.
    pub surges: WindowedCountMin<u16>,
    /// Tokens, which all instances spend from.
    pub limits: TokenBucket<u16>,
}

/// Sizes and times of the function's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Tokens of the whole run.
    pub tokens: u32,
    /// Capacity of the tables that idle out.
    pub entries: u32,
    /// Keys of counters and joined values.
    pub keys: u32,
    /// Ports on each range.
    pub ports: u32,
    /// Idle times in seconds.
    pub idle: [Tick; 2],
}

/// The function.
#[derive(Debug)]
pub struct Exercise {
    sizes: Sizes,
    done: RefCell<Vec<Done>>,
    granted: RefCell<Vec<(u32, u16)>>,
}

/// Tokens and writes of one [`Verb::Bulk`]: almost as many as one packet may write.
pub const BULK: u32 = 24;

/// Places of the vector.
pub const PLACES: u32 = 5;

/// Nodes that an edge of [`Exercised::talk`] leads to.
const FRIENDS: u32 = 7;

/// So long that at a run's end there is something to compare, and that nobody needs to say that time passes: a cluster at rest
/// writes nothing.
const WINDOW: Window = Window {
    buckets: 2,
    bucket_seconds: 100_000,
};

/// So short that what was added leaves it during a run.
pub const SURGE_WINDOW: Window = Window {
    buckets: 2,
    bucket_seconds: 2,
};

/// Keys of [`Exercised::admitted`] and of [`Exercised::limits`]: few, so that each is put in twice, and runs empty.
pub const FEW: [u16; 2] = [8, 3];

/// So slow that a bucket that ran empty is not full again when all is at rest.
pub const LIMIT: TokenRate = TokenRate {
    tokens_per_second: 3,
    burst_tokens: 30,
};

/// What a [`Verb::Spend`] spends.
pub fn cost_of(command: &Command) -> u64 {
    u64::from(command.token % 7 + 1)
}

/// What a [`Verb::Tally`] adds in which place: as often less as more.
pub fn load_of(command: &Command) -> (u32, i64) {
    (
        u32::from(command.key) % PLACES,
        i64::from(command.token % 9) - 4,
    )
}

impl Exercise {
    /// A function with objects of these sizes.
    pub fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            done: RefCell::default(),
            granted: RefCell::default(),
        }
    }

    /// Hands out what calls did since the last time, in order.
    pub fn take_done(&self, mut each: impl FnMut(Done)) {
        self.done.borrow_mut().drain(..).for_each(&mut each);
    }

    /// Hands out which port each call was granted while it asked, by token, in order.
    pub fn take_granted(&self, mut each: impl FnMut(u32, u16)) {
        let mut granted = self.granted.borrow_mut();
        granted
            .drain(..)
            .for_each(|(token, port)| each(token, port));
    }

    fn note(&self, done: Done) {
        self.done.borrow_mut().push(done);
    }
}

impl NetworkFunction for Exercise {
    type State = Recorded;

    fn state(&self, builder: &Builder) -> Recorded {
        let Sizes {
            tokens,
            entries,
            keys,
            ports,
            idle,
        } = self.sizes;
        let of_others = [
            "winners", "sessions", "banned", "elected", "raised", "visited", "pairs",
        ];
        let mut most = vec![("tokens", BULK), ("joined", BULK)];
        most.extend(of_others.map(|object| (object, 1)));
        builder.writing(2 * BULK, &most);
        let pool = |builder: &Builder| builder.pool("ports", Ports { items: ports });
        let mut state = Exercised {
            tokens: builder.table("tokens", tokens, &[]),
            winners: builder.table("winners", entries, &idle),
            joined: builder.table("joined", 2_400, &[]),
            sessions: builder.table("sessions", entries, &idle[..1]),
            ports: pool(builder),
            banned: builder.table("banned", entries, &idle[1..]),
            elected: builder.register("elected", Winner(0)),
            raised: builder.register("raised", Joined::default()),
            commands: builder.counter("commands"),
            tallies: builder.counters("tallies", keys * 16),
            visited: builder.table("visited", entries, &idle[1..]),
            pairs: builder.table("pairs", entries, &idle[1..]),
            loads: builder.vector("loads", PLACES),
            volumes: builder.count_min("volumes", 0.1, 0.1),
            counted: builder.bloom("counted", keys, 0.1),
            talk: builder.graph("talk", keys * FRIENDS * 16, 0),
            recent: builder.windowed_counters("recent", keys * 16, WINDOW),
            heavy: builder.top_k("heavy", 8),
            admitted: builder.counting_bloom("admitted", 16, 0.1),
            surges: builder.windowed_count_min("surges", (0.1, 0.3), SURGE_WINDOW),
            limits: builder.token_bucket("limits", 64, LIMIT, Spending::Approximate),
        };
        let returns = state.ports.returns();
        state.sessions.on_forget(1, move |pair, last| {
            if last {
                returns.item(&pair.1);
            }
        });
        // What a new incarnation of this host finds in use is not granted again.
        let holds = state.ports.returns();
        state.sessions.on_adopt(move |pair| holds.hold(&pair.1));
        Recorded::new(state)
    }

    fn packet(&self, ask: Ask<'_, Recorded>) -> Result<Verdict, Late> {
        let command = ask
            .packet()
            .flow4()
            .and_then(|flow| Command::read(ask.packet().payload(), &flow));
        let Some(command) = command else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        match command.verb {
            Verb::Open | Verb::Close | Verb::Reply => self.session(ask, command),
            Verb::Visit => self.visit(ask, command),
            Verb::Bulk => self.bulk(ask, command),
            _ => self.plain(ask, command),
        }
    }
}

const DONE: Verdict = Verdict::Forward(PortNumber(1));
const FULL: Verdict = Verdict::Drop(Reason::TableFull);

impl Exercise {
    /// Commands on one entry or accumulator, with no grants but room.
    fn plain(&self, ask: Ask<'_, Recorded>, command: Command) -> Result<Verdict, Late> {
        let Command { verb, key, token } = command;
        let arrived = ask.now();
        let Some(room) = ask.tokens.vacancy()? else {
            return Ok(FULL);
        };
        let winner = match verb {
            Verb::Write | Verb::Erase | Verb::Use => ask.winners.get(&key)?,
            _ => None,
        };
        let winner_room = match (verb, &winner) {
            (Verb::Write, None) => ask.winners.vacancy()?,
            _ => None,
        };
        let joined = match verb {
            Verb::Join => ask.joined.get(&key)?,
            _ => None,
        };
        let joined_room = match (verb, &joined) {
            (Verb::Join, None) => ask.joined.vacancy()?,
            _ => None,
        };
        let banned = match verb {
            Verb::Ban | Verb::Unban => ask.banned.get(&key)?,
            _ => None,
        };
        let banned_room = match (verb, &banned) {
            (Verb::Ban, None) => ask.banned.vacancy()?,
            _ => None,
        };
        let tally = match verb {
            Verb::Tally => ask.tallies.find(&key)?,
            _ => None,
        };
        let recent = match verb {
            Verb::Tally => ask.recent.find(&key)?,
            _ => None,
        };
        let link = match verb {
            Verb::Tally => ask.talk.link(&key, &((token % FRIENDS) as u16))?,
            _ => None,
        };
        let partner = (token.wrapping_mul(7) >> 3) as u16 % 16;
        let paired = match verb {
            Verb::Pair => ask.pairs.by_left(&key)?,
            _ => None,
        };
        let pair_room = match (verb, &paired) {
            (Verb::Pair, None) => ask.pairs.vacancy()?,
            _ => None,
        };
        let spending = match verb {
            Verb::Spend => ask.limits.tokens(&key, cost_of(&command))?,
            _ => None,
        };
        let elected = ask.elected.get()?;
        let mut act = ask.act()?;
        act.tokens.insert(room, token, ());
        act.commands.add(1);
        let given = winner.map(|at| at.row.0);
        let given = given.or(joined.map(|at| at.row.0));
        let given = given.or(banned.map(|at| at.row.0));
        let mut done = Done {
            command,
            arrived,
            given: given.or(paired.map(|at| at.row.0)),
            found: false,
            before: winner.map(|at| at.value.0),
            port: None,
            granted: false,
        };
        match verb {
            Verb::Write => match (&winner, winner_room) {
                // The one after the last write of a key writes over it as `insert` does.
                (Some(at), _) => act.winners.update(at, Winner(token)),
                (None, Some(room)) => act.winners.insert(room, key, Winner(token)),
                (None, None) => done.command.verb = Verb::Note,
            },
            Verb::Erase => {
                if let Some(at) = &winner {
                    done.found = true;
                    act.winners.remove(at);
                }
            }
            Verb::Use => {
                if let Some(at) = &winner {
                    done.found = true;
                    act.winners.touch(at);
                }
            }
            Verb::Join => match (&joined, joined_room) {
                (Some(at), _) => act.joined.update(at, Joined::of(token)),
                (None, Some(room)) => act.joined.insert(room, key, Joined::of(token)),
                (None, None) => done.command.verb = Verb::Note,
            },
            Verb::Ban => match (&banned, banned_room) {
                (Some(at), _) => act.banned.touch(at),
                (None, Some(room)) => act.banned.insert(room, key, ()),
                (None, None) => done.command.verb = Verb::Note,
            },
            Verb::Pair => match (&paired, pair_room) {
                (Some(at), _) if token.is_multiple_of(4) => act.pairs.remove(at),
                (Some(at), _) => act.pairs.touch(at),
                (None, Some(room)) => act.pairs.insert(room, (key, partner), ()),
                (None, None) => done.command.verb = Verb::Note,
            },
            Verb::Unban => {
                if let Some(at) = &banned {
                    done.found = true;
                    act.banned.remove(at);
                }
            }
            Verb::Elect => {
                done.before = Some(elected.0);
                act.elected.set(Winner(token));
            }
            Verb::Raise => act.raised.set(Joined::of(token)),
            Verb::Tally => match &tally {
                Some(tally) => {
                    act.tallies.add(tally, u64::from(token % 5 + 1));
                    let (place, load) = load_of(&done.command);
                    act.loads.add(place, load);
                    act.volumes.add(&key, u64::from(token % 5 + 1));
                    act.counted.add(&key);
                    act.heavy.add(&key, u64::from(token % 5 + 1));
                    act.surges.add(&key, u64::from(token % 5 + 1));
                    if let Some(recent) = &recent {
                        act.recent.add(recent, u64::from(token % 5 + 1));
                    }
                    if let Some(link) = link {
                        act.talk.add(link, u64::from(token % 5 + 1));
                    }
                }
                None => done.command.verb = Verb::Note,
            },
            Verb::Admit => act.admitted.add(&key),
            Verb::Dismiss => act.admitted.remove(&key),
            Verb::Spend => {
                if let Some(tokens) = spending {
                    done.found = true;
                    act.limits.spend(tokens);
                }
            }
            _ => {}
        }
        self.note(done);
        Ok(DONE)
    }

    /// A small address translation: one client, one outside port, unique both ways.
    fn session(&self, ask: Ask<'_, Recorded>, command: Command) -> Result<Verdict, Late> {
        let Command { verb, key, token } = command;
        let arrived = ask.now();
        let found = match verb {
            Verb::Reply => ask.sessions.by_right(&key)?,
            _ => ask.sessions.by_left(&key)?,
        };
        if verb == Verb::Reply && found.is_none() {
            ask.ports.settled(&key)?;
            return Ok(Verdict::Drop(Reason::NoBinding));
        }
        let Some(room) = ask.tokens.vacancy()? else {
            return Ok(FULL);
        };
        let mut granted = None;
        if verb == Verb::Open && found.is_none() {
            let range = ask.choose(u64::from(key), SHELVES);
            let Some(vacancy) = ask.sessions.vacancy()? else {
                return Ok(FULL);
            };
            let wish = u32::from(key) % ask.ports.space().items;
            let Some(grant) = ask.ports.grant(range, wish)? else {
                return Ok(Verdict::Drop(Reason::PortsExhausted));
            };
            self.granted.borrow_mut().push((token, grant.item()));
            granted = Some((vacancy, grant));
            // What is late now is late with a port in hand.
            let _ = ask.visited.get(&key)?;
            // One in eight changes its mind: what it reserved returns.
            if token.is_multiple_of(8) {
                return Ok(Verdict::Drop(Reason::Filtered));
            }
        }
        let mut act = ask.act()?;
        act.tokens.insert(room, token, ());
        act.commands.add(1);
        let mut done = Done {
            command,
            arrived,
            given: found.map(|at| match verb {
                Verb::Reply => at.row.1,
                _ => at.row.0,
            }),
            found: found.is_some(),
            before: None,
            port: found.map(|at| at.row.1),
            granted: granted.is_some(),
        };
        match (verb, &found, granted) {
            (Verb::Open, None, Some((vacancy, grant))) => {
                let port = act.ports.take(grant);
                done.port = Some(port);
                act.sessions.insert(vacancy, (key, port), Joined::of(token));
            }
            (Verb::Close, Some(at), _) => act.sessions.remove(at),
            (_, Some(at), _) => act.sessions.update(at, Joined::of(token)),
            _ => {}
        }
        self.note(done);
        Ok(DONE)
    }

    fn visit(&self, ask: Ask<'_, Recorded>, command: Command) -> Result<Verdict, Late> {
        let Command { key, token, .. } = command;
        let arrived = ask.now();
        let (visited, tally) = ask.all((ask.visited.get(&key), ask.tallies.find(&key)))?;
        let Some(room) = ask.tokens.vacancy()? else {
            return Ok(FULL);
        };
        let vacancy = match &visited {
            Some(_) => None,
            None => ask.visited.vacancy()?,
        };
        let mut act = ask.act()?;
        act.tokens.insert(room, token, ());
        act.commands.add(1);
        let mut done = Done {
            command,
            arrived,
            given: visited.map(|at| at.row.0),
            found: visited.is_some(),
            before: None,
            port: None,
            granted: false,
        };
        match (&visited, vacancy) {
            (Some(at), _) => act.visited.update(at, Joined::of(token)),
            (None, Some(room)) => act.visited.insert(room, key, Joined::of(token)),
            (None, None) => {}
        }
        match &tally {
            Some(tally) => act.tallies.add(tally, u64::from(token % 5 + 1)),
            None => done.command.verb = Verb::Note,
        }
        self.note(done);
        Ok(DONE)
    }

    /// The token, and as many after it, with a joined value for each.
    fn bulk(&self, ask: Ask<'_, Recorded>, command: Command) -> Result<Verdict, Late> {
        let Command { key, token, .. } = command;
        let mut rooms = Vec::with_capacity(BULK as usize);
        for number in 0..BULK {
            let row = key % 4 * 100 + 1_000 + number as u16;
            let joined = ask.joined.get(&row)?;
            let vacancy = match &joined {
                Some(_) => None,
                None => ask.joined.vacancy()?,
            };
            // Nothing of a command is done that finds no room for all of it.
            let (Some(room), true) = (ask.tokens.vacancy()?, joined.is_some() || vacancy.is_some())
            else {
                return Ok(FULL);
            };
            rooms.push((row, token + number, room, joined, vacancy));
        }
        let arrived = ask.now();
        let mut act = ask.act()?;
        act.commands.add(1);
        for (row, token, room, joined, vacancy) in rooms {
            act.tokens.insert(room, token, ());
            match (&joined, vacancy) {
                (Some(at), _) => act.joined.update(at, Joined::of(token)),
                (None, Some(room)) => act.joined.insert(room, row, Joined::of(token)),
                (None, None) => {}
            }
        }
        self.note(Done {
            command,
            arrived,
            given: None,
            found: true,
            before: None,
            port: None,
            granted: false,
        });
        Ok(DONE)
    }
}
