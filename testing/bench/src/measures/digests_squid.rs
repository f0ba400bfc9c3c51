//! `digests.squid`: a real Squid finds objects at its sibling by a digest that went through the cluster.
//!
//! A first Squid stores 1,000 objects of an origin. One host of the product, on loopback, fetches its digest; another serves it to a
//! second Squid, which has the first one as a sibling without queries (`cache_peer ... no-query digest-url=...`). A client then asks
//! the second Squid for the 1,000 objects, and the value is how many of them it had from its sibling, as its own log says. The digest
//! that was served must have all 1,000 objects: a false negative ends the measure.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use asterism_functions::cache_digests::squid::{StoreKey, contains, read};
use asterism_lab::squid::{Origin, Squid, is_installed};

use super::host_process::{Folder, HostProcess, Products, two_addresses, wait};
use super::lab::product;
use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[Measure {
    name: "digests.squid",
    make: squid,
}];

/// Objects that the first cache stores.
const OBJECTS: u32 = 1_000;
/// Objects that its own digest lacks at most for it to be asked for them again.
const AGAIN_MAX: usize = 20;
/// Objects that it does not have, for the share of strangers that the digest claims.
const STRANGERS: u32 = 10_000;
/// How long the second Squid may take to use a digest that it has fetched.
const SETTLE: Duration = Duration::from_millis(500);

fn squid(context: &Context) -> Result<Outcome, Failure> {
    if !is_installed() {
        let sentence = "squid is not installed, or makes no digests: apt-get install squid";
        return Err(Failure::Absent(sentence.to_owned()));
    }
    let product = product()?;
    let folder = Folder::new()?;
    let absent = |error: std::io::Error| Failure::Absent(error.to_string());
    let unsound = |error: std::io::Error| Failure::Unsound(error.to_string());
    let origin = Origin::start().map_err(absent)?;
    let first = Squid::start(&folder.path(""), "first", "").map_err(absent)?;
    for number in 0..OBJECTS {
        let status = first.get(&origin.url(number)).map_err(unsound)?;
        if status != 200 {
            return Err(Failure::Unsound(format!(
                "object {number}: status {status}"
            )));
        }
    }
    // What its disk is too slow for at the moment Squid does not store: that is asked for again. Else its own digest would lack it.
    let (mut seen, mut again) = (None, 0);
    wait("squid's own digest of all objects", || {
        let digest = get(first.port(), "/squid-internal-periodic/store_digest");
        if digest == seen {
            return Ok(None);
        }
        let lacking = digest.as_deref().and_then(|one| lacking(&origin, one));
        seen = digest;
        let Some(lacking) = lacking else {
            return Ok(None);
        };
        // Mostly it has not come to the last ones yet.
        if lacking.len() <= AGAIN_MAX {
            for number in &lacking {
                first.reload(&origin.url(*number)).map_err(unsound)?;
                again += 1;
            }
        }
        Ok(lacking.is_empty().then_some(()))
    })?;
    let ports = [free_port()?, free_port()?];
    let products = Products::new(&product, &configuration(&first, ports)?)?;
    let mut hosts = [products.start("a")?, products.start("b")?];
    for host in &mut hosts {
        host.wait_for_ready()?;
    }
    let [a, b] = &hosts;
    // The digest is made again every second, and fetched as often.
    let mut served = None;
    let digest = wait("the digest of all objects at the second host", || {
        let digest = get(ports[1], "/digests/first");
        served = digest.as_ref().map(|digest| lacking(&origin, digest));
        Ok(digest.filter(|_| served == Some(Some(Vec::new()))))
    });
    let digest = match (digest, served) {
        (Ok(digest), _) => digest,
        (Err(Failure::Unsound(sentence)), served) => {
            let lacks = match served {
                Some(Some(lacking)) => format!("it lacks {} objects", lacking.len()),
                Some(None) => "what is served is none".to_owned(),
                None => "nothing is served".to_owned(),
            };
            let caches =
                [a.status(&[])?, b.status(&[])?].map(|status| status["caches"].to_string());
            let caches = caches.join(", ");
            return Err(Failure::Unsound(format!("{sentence}: {lacks}; {caches}")));
        }
        (Err(failure), _) => return Err(failure),
    };
    let (header, mask) = read(&digest, 1 << 20)
        .map_err(|refusal| Failure::Unsound(format!("the digest: {}", refusal.meaning())))?;
    let claims = |number: &u32| contains(mask, StoreKey::of_get(origin.url(*number).as_bytes()));
    let strangers = (OBJECTS..OBJECTS + STRANGERS).filter(claims).count();
    if count(a, "fetched")? == 0 || count(b, "fetched")? != 0 {
        let sentence = "the digest was not fetched by the first host alone";
        return Err(Failure::Unsound(sentence.to_owned()));
    }
    let before = count(b, "served")?;
    let url = format!("http://127.0.0.1:{}/digests/first", ports[1]);
    let peer = format!(
        "cache_peer 127.0.0.1 sibling {} 0 no-query no-netdb-exchange digest-url={url}",
        first.port()
    );
    let second = Squid::start(&folder.path(""), "second", &peer).map_err(absent)?;
    // It asks for the digest when it first misses an object: one that the measure does not count.
    let mut stranger = OBJECTS;
    wait("squid to fetch the digest", || {
        stranger += 1;
        second.get(&origin.url(stranger)).map_err(unsound)?;
        Ok((count(b, "served")? > before).then_some(()))
    })?;
    std::thread::park_timeout(SETTLE);
    let (hits, asked) = (second.sibling_hits(), origin.asked());
    let mut failed = 0;
    for number in 0..OBJECTS {
        let status = second.get(&origin.url(number)).map_err(unsound)?;
        failed += u32::from(status != 200);
    }
    if failed > 0 {
        return Err(Failure::Unsound(format!("{failed} objects did not come")));
    }
    let hits = second.sibling_hits() - hits;
    let asked = origin.asked() - asked;
    context.say(&format!(
        "{hits} of {OBJECTS} objects from the sibling, {asked} from the origin; the digest has {} bytes and claims {strangers} of {STRANGERS} strangers",
        digest.len()
    ));
    Ok(Outcome::new(hits as f64, 1)
        .variant("from-origin", asked as f64)
        .variant("stored-at-the-second-try", f64::from(again))
        .variant("digest-bytes", digest.len() as f64)
        .variant("digest-objects", f64::from(header.count))
        .variant("strangers-claimed", strangers as f64 / f64::from(STRANGERS)))
}

/// The objects that a digest lacks; `None` if it is none.
fn lacking(origin: &Origin, digest: &[u8]) -> Option<Vec<u32>> {
    let (_, mask) = read(digest, 1 << 20).ok()?;
    let lacks = |number: &u32| !contains(mask, StoreKey::of_get(origin.url(*number).as_bytes()));
    Some((0..OBJECTS).filter(lacks).collect())
}

/// Two hosts, the second of which serves what the first fetches.
fn configuration(first: &Squid, ports: [u16; 2]) -> Result<String, Failure> {
    let mut text = String::from("[cluster]\nkey = \"cluster.key\"\nmembers = [\"a\", \"b\"]\n");
    for ((name, address), port) in ["a", "b"].iter().zip(two_addresses()?).zip(ports) {
        text.push_str(&format!(
            "[cluster.member.{name}]\naddress = \"{address}\"\n\
             [on.{name}]\nhost = {{ control = \"{name}.sock\" }}\n\
             port.inside.path = \"{name}.inside\"\nport.outside.path = \"{name}.outside\"\n\
             [on.{name}.function.cache-digests]\nserve = \"127.0.0.1:{port}\"\n"
        ));
    }
    text.push_str(&format!(
        "[host]\njoin_wait = \"400ms\"\n\
         [port]\ninside = {{ kind = \"shared_memory\", role = \"listen\" }}\n\
         outside = {{ kind = \"shared_memory\", role = \"listen\" }}\n\
         [function.cache-digests]\ninterval = \"1s\"\nkeep = \"1m\"\n\
         caches.first = {{ address = \"127.0.0.1\", http = {} }}\n",
        first.port()
    ));
    Ok(text)
}

fn free_port() -> Result<u16, Failure> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|bound| bound.local_addr());
    bound
        .map(|address| address.port())
        .map_err(|error| Failure::Absent(format!("no port: {error}")))
}

/// What a host serves at a path, if it does.
fn get(port: u16, path: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
        .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    answer
        .starts_with(b"HTTP/1.1 200 ")
        .then(|| answer.split_off(end + 4))
}

/// What a host counted of web caches.
fn count(host: &HostProcess<'_>, name: &str) -> Result<u64, Failure> {
    let status = host.status(&[])?;
    status["caches"][name]
        .as_u64()
        .ok_or_else(|| Failure::Unsound(format!("the status has no {name} of web caches")))
}
