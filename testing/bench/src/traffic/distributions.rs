//! Published distributions of sizes and mixes, and Zipf popularity.
//!
//! The figures lie under `data/` with their provenance; nothing here was fitted.

use super::random::Random;

/// A distribution given by points of its cumulative function, linear between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// (cumulative share, figure), both rising.
    points: Vec<(f64, f64)>,
}

/// The size distributions that are built in: (name, `bytes,cdf` lines).
pub const SIZES: &[(&str, &str)] = &[
    (
        "alistorage2019",
        include_str!("../../data/cdf/alistorage2019.csv"),
    ),
    (
        "datamining_vl2",
        include_str!("../../data/cdf/datamining_vl2.csv"),
    ),
    (
        "facebook_cachefollower_intracluster",
        include_str!("../../data/cdf/facebook_cachefollower_intracluster.csv"),
    ),
    (
        "facebook_hadoop_all",
        include_str!("../../data/cdf/facebook_hadoop_all.csv"),
    ),
    (
        "facebook_hadoop_hpcc",
        include_str!("../../data/cdf/facebook_hadoop_hpcc.csv"),
    ),
    (
        "facebook_kv_hkust",
        include_str!("../../data/cdf/facebook_kv_hkust.csv"),
    ),
    (
        "facebook_webserver_intracluster",
        include_str!("../../data/cdf/facebook_webserver_intracluster.csv"),
    ),
    (
        "google_rpc2008",
        include_str!("../../data/cdf/google_rpc2008.csv"),
    ),
    (
        "google_search_rpc",
        include_str!("../../data/cdf/google_search_rpc.csv"),
    ),
    (
        "websearch_dctcp",
        include_str!("../../data/cdf/websearch_dctcp.csv"),
    ),
];

const INTERNET_HOST: &str = include_str!("../../data/flows/internet-host-2days-quantiles.csv");
const IMIX: &str = include_str!("../../data/mix/imix.csv");
const SFR: &str = include_str!("../../data/mix/sfr_emix_templates.csv");

impl Distribution {
    /// A built-in distribution of flow, message or value sizes in bytes, by its name in [`SIZES`].
    pub fn of_sizes(name: &str) -> Option<Self> {
        let (_, text) = SIZES.iter().find(|(known, _)| *known == name)?;
        Self::from_cdf(text)
    }

    /// A quantity of real connections of a host on the open internet, as `tcp_duration_s` or `udp_total_packets`.
    /// Below the 1 % quantile it gives that quantile.
    pub fn of_internet_host(quantity: &str) -> Option<Self> {
        let mut lines = INTERNET_HOST.lines();
        let shares: Vec<f64> = lines
            .next()?
            .split(',')
            .skip(2)
            .map(|head| head.strip_prefix('q')?.parse().ok())
            .collect::<Option<_>>()?;
        let line = lines.find(|line| line.split(',').next() == Some(quantity))?;
        let figures: Vec<f64> = line
            .split(',')
            .skip(2)
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        Self::from_points(shares.into_iter().zip(figures).collect())
    }

    /// Reads `figure,cumulative share` lines under a heading; `None` unless both rise and the shares end at 1.
    pub fn from_cdf(text: &str) -> Option<Self> {
        let points = text
            .lines()
            .skip(1)
            .filter(|line| !line.trim().is_empty())
            .map(|line| {
                let (figure, share) = line.split_once(',')?;
                Some((share.trim().parse().ok()?, figure.trim().parse().ok()?))
            })
            .collect::<Option<Vec<(f64, f64)>>>()?;
        Self::from_points(points)
    }

    fn from_points(points: Vec<(f64, f64)>) -> Option<Self> {
        let rising = points
            .windows(2)
            .all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1);
        let ends_at_one = points
            .last()
            .is_some_and(|(share, _)| (share - 1.0).abs() < 1e-9);
        (rising && ends_at_one).then_some(Self { points })
    }

    /// The figure below which `share` (0 to 1) of the draws lie.
    pub fn quantile(&self, share: f64) -> f64 {
        let above = self
            .points
            .partition_point(|(cumulative, _)| *cumulative < share);
        match (
            above
                .checked_sub(1)
                .and_then(|below| self.points.get(below)),
            self.points.get(above),
        ) {
            (Some((low_share, low)), Some((high_share, high))) => {
                low + (high - low) * (share - low_share) / (high_share - low_share)
            }
            (None, Some((_, first))) => *first,
            (Some((_, last)), None) => *last,
            (None, None) => f64::NAN,
        }
    }

    /// A random draw.
    pub fn draw(&self, random: &mut Random) -> f64 {
        self.quantile(random.unit())
    }

    /// The mean of the piecewise linear function.
    pub fn mean(&self) -> f64 {
        let first = self
            .points
            .first()
            .map_or(0.0, |(share, figure)| share * figure);
        first
            + self
                .points
                .windows(2)
                .map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0)
                .sum::<f64>()
    }
}

/// Things with weights.
#[derive(Debug, Clone)]
pub struct Mix<T> {
    things: Vec<T>,
    cumulative: Vec<f64>,
}

impl Mix<u16> {
    /// Simple IMIX: frames of 64, 594 and 1518 bytes, 7 : 4 : 1.
    pub fn imix() -> Self {
        Self::of(IMIX.lines().skip(1).filter_map(|line| {
            let mut fields = line.split(',').skip(1);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        }))
    }
}

/// One conversation of the SFR mix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The name of the template.
    pub name: String,
    /// Packets, both ways.
    pub packets: u32,
    /// Bytes on the wire, both ways.
    pub bytes: u64,
}

impl Mix<Conversation> {
    /// TRex's SFR profile: 18 conversations by their share of all connections.
    pub fn sfr() -> Self {
        Self::of(SFR.lines().skip(1).filter_map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let conversation = Conversation {
                name: (*fields.first()?).to_owned(),
                packets: fields.get(3)?.parse().ok()?,
                bytes: fields.get(4)?.parse().ok()?,
            };
            Some((conversation, fields.get(1)?.parse().ok()?))
        }))
    }
}

impl<T> Mix<T> {
    /// Things and their weights; the weights are positive.
    pub fn of(weighted: impl IntoIterator<Item = (T, f64)>) -> Self {
        let mut sum = 0.0;
        let (things, cumulative) = weighted
            .into_iter()
            .map(|(thing, weight)| {
                sum += weight;
                (thing, sum)
            })
            .unzip();
        Self { things, cumulative }
    }

    /// One at random, by weight. Panics on an empty mix.
    pub fn draw(&self, random: &mut Random) -> &T {
        let place = random.unit() * self.cumulative.last().copied().unwrap_or(0.0);
        let index = self
            .cumulative
            .partition_point(|cumulative| *cumulative <= place);
        &self.things[index.min(self.things.len() - 1)]
    }

    /// The things.
    pub fn things(&self) -> &[T] {
        &self.things
    }
}

/// Ranks whose popularity falls as 1 / rank^exponent.
#[derive(Debug, Clone)]
pub struct Zipf(Mix<u32>);

impl Zipf {
    /// Of `count` ranks; 16 bytes of memory each, a binary search a draw.
    pub fn new(count: u32, exponent: f64) -> Self {
        Self(Mix::of(
            (0..count).map(|rank| (rank, f64::from(rank + 1).powf(-exponent))),
        ))
    }

    /// A rank, 0 the most popular.
    pub fn draw(&self, random: &mut Random) -> u32 {
        *self.0.draw(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated_linearly() {
        let web = Distribution::of_sizes("websearch_dctcp").expect("built in");
        assert_eq!(web.quantile(0.0), 0.0);
        assert_eq!(web.quantile(0.15), 10_000.0);
        assert!((web.quantile(0.175) - 15_000.0).abs() < 1e-6);
        assert!((web.quantile(0.985) - 20_000_000.0).abs() < 1.0);
        assert_eq!(web.quantile(1.0), 30_000_000.0);
    }

    #[test]
    fn every_built_in_distribution_has_the_mean_and_points_it_was_published_with() {
        let provenance = include_str!("../../data/cdf/PROVENANCE.csv");
        let mut seen = 0;
        for line in provenance.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let name = fields[0].trim_end_matches(".csv");
            let sizes =
                Distribution::of_sizes(name).unwrap_or_else(|| panic!("{name} does not read"));
            let (points, mean): (usize, f64) = (
                fields[1].parse().expect("points"),
                fields[2].parse().expect("mean"),
            );
            assert_eq!(sizes.points.len(), points, "{name}");
            assert!(
                (sizes.mean() / mean - 1.0).abs() < 0.01,
                "{name}: {} instead of {mean}",
                sizes.mean()
            );
            let mut random = Random::new(9);
            let drawn = (0..200_000).map(|_| sizes.draw(&mut random)).sum::<f64>() / 200_000.0;
            assert!((drawn / mean - 1.0).abs() < 0.1, "{name}: drew {drawn}");
            seen += 1;
        }
        assert_eq!(seen, SIZES.len());
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        assert!(Distribution::from_cdf("bytes,cdf\n10,0.5\n5,1\n").is_none());
        assert!(Distribution::from_cdf("bytes,cdf\n10,0.5\n").is_none());
        assert!(Distribution::from_cdf("bytes,cdf\nten,1\n").is_none());
        assert!(Distribution::of_sizes("nothing").is_none());
    }

    #[test]
    fn real_connections_have_their_quantiles() {
        let packets = Distribution::of_internet_host("tcp_total_packets").expect("built in");
        assert_eq!(packets.quantile(0.75), 14.0);
        assert_eq!(packets.quantile(0.001), 2.0);
        assert_eq!(packets.quantile(1.0), 1_232.0);
        assert!(Distribution::of_internet_host("n").is_none());
    }

    #[test]
    fn mixes_keep_their_weights() {
        let mut random = Random::new(4);
        let imix = Mix::imix();
        assert_eq!(imix.things(), [64, 594, 1_518]);
        let small = (0..12_000)
            .filter(|_| *imix.draw(&mut random) == 64)
            .count();
        assert!((6_800..7_200).contains(&small), "{small}");

        let sfr = Mix::sfr();
        assert_eq!(sfr.things().len(), 18);
        let dns = (0..10_000)
            .filter(|_| sfr.draw(&mut random).name.contains("dns"))
            .count();
        assert!((4_650..5_000).contains(&dns), "{dns}");
    }

    #[test]
    fn popularity_falls_with_the_rank() {
        let zipf = Zipf::new(1_000, 1.0);
        let mut random = Random::new(4);
        let mut seen = vec![0u32; 1_000];
        for _ in 0..100_000 {
            seen[zipf.draw(&mut random) as usize] += 1;
        }
        // The harmonic number of 1,000 is 7.485, so the first rank has 13.4 % and the second half of that.
        assert!((12_900..13_900).contains(&seen[0]), "{}", seen[0]);
        assert!((6_300..7_100).contains(&seen[1]), "{}", seen[1]);
        assert!(seen[900] < 60);
    }
}
