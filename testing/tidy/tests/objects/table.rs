use asterism_function::Writer;

use super::*;

/// A host that has a port of ours, and the link behind which it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
struct Owner {
    host: Ipv4Addr,
    port: u16,
    link: u16,
}

impl Row for Owner {
    /// Host and port are unique, the link is a group.
    const UNIQUE: usize = 2;
    const LANES: usize = 3;

    fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
        use asterism_function::Key;
        match lane {
            0 => Key::hash(&self.host, seed),
            1 => Key::hash(&self.port, seed),
            _ => Key::hash(&self.link, seed),
        }
    }

    fn lane_key(&self, lane: usize, out: &mut Writer<'_>) {
        match lane {
            0 => self.host.encode(out),
            1 => self.port.encode(out),
            _ => self.link.encode(out),
        }
    }

    fn lane_equal(&self, lane: usize, other: &Self) -> bool {
        match lane {
            0 => self.host == other.host,
            1 => self.port == other.port,
            _ => self.link == other.link,
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Paired for Owner {
    type Left = Ipv4Addr;
    type Right = u16;
    fn left(&self) -> Ipv4Addr {
        self.host
    }
    fn right(&self) -> u16 {
        self.port
    }
}

impl Grouped for Owner {
    type Group = u16;
    fn group(&self, _: usize) -> u16 {
        self.link
    }
}

#[state]
struct Owners {
    owners: Table<Owner, ()>,
}

fn state(builder: &Builder) -> Owners {
    Owners {
        owners: builder.table("owners", 10_000, &[300]),
    }
}

fn packet(ask: Ask<'_, Owners>) -> Result<Verdict, Late> {
    let Some(flow) = ask.packet().flow4() else {
        return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
    };
    let row = Owner {
        host: flow.source,
        port: flow.destination_port,
        link: ask.port().0,
    };
    let taken = (
        ask.owners.by_left(&row.host),
        ask.owners.by_right(&row.port),
    );
    let (of_host, of_port) = ask.all(taken)?;
    if of_host.is_none() && of_port.is_none() {
        // What adding the row reads comes while the packet is judged.
        let Some(vacancy) = ask.owners.vacancy_for(row)? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        ask.act()?.owners.fill(vacancy, ());
    }
    Ok(Verdict::Forward(OUT))
}

#[test]
fn rows_keep_their_laws_and_are_found_by_all_keys() {
    let row = |number, port, link| Owner {
        host: host(number),
        port,
        link,
    };
    asterism_function::laws::row(row(1, 80, 0), row(1, 81, 0), 7);
    asterism_function::laws::row(row(1, 80, 0), row(2, 80, 1), 7);
    let (kit, _) = play(state, packet, &[(1, 80), (1, 81), (2, 80), (2, 81)]);
    let owners = &kit.state().owners;
    assert_eq!(owners.len_now(), 2);
    assert_eq!(owners.by_right(&81).unwrap().unwrap().row.host, host(2));
    assert!(owners.any_of(0, &0).unwrap().is_some() && owners.any_of(0, &1).unwrap().is_none());
}
