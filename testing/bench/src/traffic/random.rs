//! A small seeded generator: SplitMix64 (Steele, Lea, Flood, 2014).

/// Draws the same numbers for the same seed, on every machine. Not for secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A stream of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero; off from uniform by less than bound / 2⁶⁴.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in 0..1, of 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream() {
        // The published first output for seed 0.
        assert_eq!(Random::new(0).bits(), 0xe220_a839_7b1d_cdaf);
        let (mut one, mut two) = (Random::new(7), Random::new(8));
        assert_ne!(one.bits(), two.bits());
    }

    #[test]
    fn draws_are_even() {
        let mut random = Random::new(1);
        let mut seen = [0u32; 10];
        let mut sum = 0.0;
        for _ in 0..100_000 {
            seen[random.below(10) as usize] += 1;
            sum += random.unit();
        }
        assert!(
            seen.iter().all(|count| (9_500..10_500).contains(count)),
            "{seen:?}"
        );
        assert!((sum / 100_000.0 - 0.5).abs() < 0.01);
    }
}
