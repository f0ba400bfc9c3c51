//! Laws that values and rows must keep for replicas to agree; call them from property tests.

use crate::table::{Row, Value};

/// Joining commutes, associates and is idempotent; ordering is antisymmetric.
///
/// # Panics
/// When a law is broken, saying which.
pub fn value<V: Value>(a: V, b: V, c: V) {
    assert_eq!(
        a.order(&b),
        b.order(&a).reverse(),
        "order must be antisymmetric: {a:?} {b:?}"
    );
    if !V::JOINS {
        return;
    }
    let join = |mut left: V, right: V| {
        left.join(&right);
        left
    };
    assert_eq!(join(a, a), a, "joining must be idempotent");
    assert_eq!(join(a, b), join(b, a), "joining must commute: {a:?} {b:?}");
    assert_eq!(
        join(join(a, b), c),
        join(a, join(b, c)),
        "joining must associate: {a:?} {b:?} {c:?}"
    );
}

/// Equal rows have equal keys, equal keys equal hashes; different rows with one key are ordered.
///
/// # Panics
/// When a law is broken, saying which.
pub fn row<R: Row>(a: R, b: R, seed: u64) {
    assert!(R::UNIQUE >= 1 && R::UNIQUE <= R::LANES && R::LANES <= crate::table::LANES_MAX);
    for lane in 0..R::LANES {
        assert!(a.lane_equal(lane, &a));
        assert_eq!(a.lane_equal(lane, &b), b.lane_equal(lane, &a));
        if a.lane_equal(lane, &b) {
            assert_eq!(
                a.lane_hash(lane, seed),
                b.lane_hash(lane, seed),
                "equal keys need equal hashes"
            );
        }
        if lane < R::UNIQUE && R::UNIQUE > 1 && a != b && a.lane_equal(lane, &b) {
            assert!(
                a.order(&b).is_ne(),
                "two rows with one key need an order: {a:?} {b:?}"
            );
        }
    }
    assert_eq!(
        a.order(&b),
        b.order(&a).reverse(),
        "order must be antisymmetric"
    );
}

/// Types whose bits join: what `#[join(or)]` is for.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no bits that join: `#[join(or)]` is for integers and `bool`",
    label = "not an integer or `bool`",
    note = "a type of bits of your own can derive `Value` with `#[join(or)]` on its number, and is joined by `#[join]`"
)]
pub trait Bits: Copy {
    fn or(self, other: Self) -> Self;
}

macro_rules! bits {
    ($($type:ty),*) => {$(
        impl Bits for $type {
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
        }
    )*};
}
bits!(bool, u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

/// What `#[join]` does: one value joined with the other.
#[doc(hidden)]
#[inline(always)]
pub fn joined<V: Value>(mut own: V, other: V) -> V {
    own.join(&other);
    own
}

/// What `each` does: an array joined item by item.
#[doc(hidden)]
#[inline(always)]
pub fn each<T: Copy, const N: usize>(own: &mut [T; N], other: &[T; N], join: impl Fn(T, T) -> T) {
    for (own, other) in own.iter_mut().zip(other) {
        *own = join(*own, *other);
    }
}
