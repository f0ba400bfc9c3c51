//! How many flows have how many packets, from cells that flows share by hash. For the control plane; imports nothing.
//!
//! Each packet adds 1 to the cell of its flow, so cells add up over instances as counters do. What is read is a bound, not a
//! guess: two flows in one cell look like one larger flow, and every flow that is lost in this way moves the number of flows of
//! at least any given size by one at most. So that number is off by the flows less the cells in use; how many flows there are
//! follows from the share of cells that are not in use (linear counting: Whang, Vander-Zanden and Taylor 1990). The same cells
//! under an iterative estimator would be those of Kumar, Sung, Xu and Wang (2004).

/// How many flows had how many packets in an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowSizes {
    /// Packets of each cell that is in use; ascending.
    sizes: Vec<u64>,
    /// Cells that there are.
    cells: u32,
}

/// Standard deviations of the number of flows that the stated error allows for: a doubt of 0.3 % at most where the
/// number is normally distributed.
const DEVIATIONS: f64 = 3.0;

impl FlowSizes {
    /// Of the sums of all cells that are in use, out of `cells`.
    #[must_use]
    pub fn of(mut sizes: Vec<u64>, cells: u32) -> Self {
        sizes.retain(|&packets| packets > 0);
        sizes.sort_unstable();
        let cells = cells.max(sizes.len() as u32);
        Self { sizes, cells }
    }

    /// About how many flows there are; `None` if all cells are in use, so that nothing can be reported.
    #[must_use]
    pub fn flows(&self) -> Option<f64> {
        let cells = f64::from(self.cells);
        let free = cells - self.sizes.len() as f64;
        (free > 0.0).then(|| -cells * (free / cells).ln())
    }

    /// What [`FlowSizes::at_least`] is off by at most, in flows: what the cells hide, and three standard deviations of the
    /// number of flows; `None` if all cells are in use.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let flows = self.flows()?;
        let cells = f64::from(self.cells);
        let load = flows / cells;
        let deviation = (cells * (load.exp() - load - 1.0)).max(0.0).sqrt();
        Some(flows - self.sizes.len() as f64 + DEVIATIONS * deviation)
    }

    /// About how many flows have at least so many packets, 1 at least; off by [`FlowSizes::error`] at most, above or below.
    #[must_use]
    pub fn at_least(&self, packets: u64) -> u64 {
        let smaller = self.sizes.partition_point(|&size| size < packets);
        (self.sizes.len() - smaller) as u64
    }

    /// `at_least` of 1, 2, 4 and so on, as long as there are flows.
    #[must_use]
    pub fn table(&self) -> Vec<(u64, u64)> {
        let most = self.sizes.last().copied().unwrap_or(0);
        (0..u64::BITS)
            .map(|power| 1u64 << power)
            .take_while(|&packets| packets <= most)
            .map(|packets| (packets, self.at_least(packets)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::objects::hash;

    #[test]
    fn what_is_reported_is_within_the_error_that_is_reported() {
        const CELLS: u32 = 1_024;
        for seed in 0..200u64 {
            let flows = 10 + hash::words(seed, 1, 9) % 1_500;
            let mut cells = vec![0u64; CELLS as usize];
            let mut exact = Vec::new();
            for flow in 0..flows {
                let draw = hash::words(flow, seed, 3);
                let size = 1 + (1_000 / (1 + draw % 1_000));
                exact.push(size);
                cells[(hash::words(flow, seed, 77) % u64::from(CELLS)) as usize] += size;
            }
            let sizes = FlowSizes::of(cells, CELLS);
            let error = sizes.error().unwrap();
            for (packets, reported) in sizes.table() {
                let truth = exact.iter().filter(|&&size| size >= packets).count();
                let off = (reported as f64 - truth as f64).abs();
                assert!(
                    off <= error,
                    "{packets}: {reported} and {truth}, not within {error}"
                );
            }
            let off = (sizes.flows().unwrap() - flows as f64).abs();
            assert!(off <= error, "{off} of {flows} flows");
        }
    }

    #[test]
    fn full_cells_tell_nothing_and_empty_ones_no_flows() {
        let full = FlowSizes::of(vec![1; 8], 8);
        assert_eq!((full.flows(), full.error()), (None, None));
        let empty = FlowSizes::of(Vec::new(), 8);
        assert_eq!(empty.flows(), Some(0.0));
        assert_eq!((empty.error(), empty.table()), (Some(0.0), Vec::new()));
        assert_eq!(
            FlowSizes::of(vec![0, 5, 3], 64).table(),
            [(1, 2), (2, 2), (4, 1)]
        );
    }
}
