//! How keys, values and operations become bytes.
//!
//! Little-endian, no padding, no self-description: the object's place in its state says what follows.
//! A reader never trusts a length and never panics.

use crate::layout;

/// Bytes that do not decode as what they should be. Nothing was applied from the point of the fault on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadBytes;

impl core::fmt::Display for BadBytes {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(
            "the bytes of an operation do not decode; the rest of its group was not applied",
        )
    }
}

impl core::error::Error for BadBytes {}

/// A key or value that can travel. `#[derive(Wire)]` writes the fields in their order.
pub trait Wire: Sized {
    /// A number for how values are written, by which hosts that would misread each other refuse each other. Derived of the
    /// fields; a type that is written manually says [`layout::manual`](crate::layout::manual), or else it is known by its size.
    const LAYOUT: u64 = layout::of_size(size_of::<Self>());
    /// Bytes of an encoded value at most. Derived of the fields; a manual implementation says so where a value may take more than a
    /// fourth and 16 bytes beyond its size in memory. What one packet may write is found by it.
    const BYTES_MAX: usize = layout::bytes_of_size(size_of::<Self>());
    /// Appends the value.
    fn encode(&self, out: &mut Writer<'_>);
    /// Reads a value back.
    ///
    /// # Errors
    /// [`BadBytes`] where bytes are missing or say what no value is. What was read is lost.
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes>;
    /// Appends several: bytes all at once.
    #[doc(hidden)]
    #[inline]
    fn encode_all(items: &[Self], out: &mut Writer<'_>) {
        for item in items {
            item.encode(out);
        }
    }
    /// Reads several back.
    #[doc(hidden)]
    #[inline]
    fn decode_all<const N: usize>(input: &mut Reader<'_>) -> Result<[Self; N], BadBytes>
    where
        Self: Copy,
    {
        const { assert!(N > 0, "an array on the wire has items") };
        let mut items = [Self::decode(input)?; N];
        for item in &mut items[1..] {
            *item = Self::decode(input)?;
        }
        Ok(items)
    }
}

/// Where encoded bytes go, with the addresses that are worth one byte instead of four.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    addresses: &'a [u32],
}

impl<'a> Writer<'a> {
    /// A writer that appends to `bytes`. `addresses` must be the same list on every member (see
    /// `Settings::addresses`).
    #[inline]
    pub fn new(bytes: &'a mut Vec<u8>, addresses: &'a [u32]) -> Self {
        Self { bytes, addresses }
    }
    /// Appends one byte.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }
    /// Appends two bytes.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }
    /// Appends the low three bytes.
    #[inline]
    pub fn u24(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes()[..3]);
    }
    /// Appends four bytes.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }
    /// Appends eight bytes.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }
    /// Appends 1 to 10 bytes, seven bits in each.
    #[inline]
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
    /// Appends what an operation begins with: its object's number and three flags, in a byte up to the sixteenth object, else in
    /// two.
    #[inline]
    pub fn tag(&mut self, object: u8, flags: u8) {
        debug_assert!(flags < 8);
        self.varint(u64::from(object) << 3 | u64::from(flags));
    }
    /// Appends bytes as they are.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    /// Appends an IPv4 address: one byte if it is a listed one, else five.
    #[inline]
    pub fn address(&mut self, address: u32) {
        let listed = &self.addresses[..self.addresses.len().min(255)];
        // Mostly they follow upon each other without a gap.
        let guess = listed
            .first()
            .map_or(0, |first| address.wrapping_sub(*first) as usize);
        let place = match listed.get(guess) {
            Some(&known) if known == address => Some(guess),
            _ => listed.iter().position(|&known| known == address),
        };
        match place {
            Some(place) => self.u8(place as u8),
            None => {
                self.u8(255);
                self.u32(address);
            }
        }
    }
}

/// Bytes being read.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    addresses: &'a [u32],
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`, with the writer's list of addresses.
    #[inline]
    pub fn new(bytes: &'a [u8], addresses: &'a [u32]) -> Self {
        Self { bytes, addresses }
    }
    /// Whether everything was read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// Bytes that were not read yet.
    #[inline]
    pub fn left(&self) -> usize {
        self.bytes.len()
    }
    /// The next `count` bytes.
    #[inline]
    pub fn raw(&mut self, count: usize) -> Result<&'a [u8], BadBytes> {
        let (head, tail) = self.bytes.split_at_checked(count).ok_or(BadBytes)?;
        self.bytes = tail;
        Ok(head)
    }
    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadBytes> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(BadBytes)?;
        self.bytes = tail;
        Ok(*head)
    }
    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, BadBytes> {
        Ok(self.array::<1>()?[0])
    }
    /// Two bytes.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, BadBytes> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Three bytes.
    #[inline]
    pub fn u24(&mut self) -> Result<u32, BadBytes> {
        let [low, middle, high] = self.array()?;
        Ok(u32::from_le_bytes([low, middle, high, 0]))
    }
    /// Four bytes.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, BadBytes> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, BadBytes> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// A number of up to 10 bytes, seven bits in each.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, BadBytes> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(BadBytes);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(BadBytes)
    }
    /// An object's number and flags as [`Writer::tag`] wrote them.
    #[inline]
    pub fn tag(&mut self) -> Result<(u8, u8), BadBytes> {
        let tag = self.varint()?;
        let object = u8::try_from(tag >> 3).map_err(|_| BadBytes)?;
        Ok((object, (tag & 7) as u8))
    }
    /// An IPv4 address as [`Writer::address`] wrote it.
    #[inline]
    pub fn address(&mut self) -> Result<u32, BadBytes> {
        match self.u8()? {
            255 => self.u32(),
            place => self
                .addresses
                .get(usize::from(place))
                .copied()
                .ok_or(BadBytes),
        }
    }
}

impl Wire for u8 {
    const LAYOUT: u64 = layout::manual("u8", 0);
    const BYTES_MAX: usize = 1;
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(*self);
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        input.u8()
    }
    #[inline]
    fn encode_all(items: &[Self], out: &mut Writer<'_>) {
        out.raw(items);
    }
    #[inline]
    fn decode_all<const N: usize>(input: &mut Reader<'_>) -> Result<[Self; N], BadBytes> {
        input.array()
    }
}

macro_rules! wire_integers {
    ($($type:ident as $unsigned:ident),*) => {$(
        impl Wire for $type {
            const LAYOUT: u64 = layout::manual(stringify!($type), 0);
            const BYTES_MAX: usize = size_of::<Self>();
            #[inline]
            fn encode(&self, out: &mut Writer<'_>) {
                out.$unsigned(*self as $unsigned);
            }
            #[inline]
            fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
                Ok(input.$unsigned()? as $type)
            }
        }
    )*};
}
wire_integers!(
    u16 as u16, u32 as u32, u64 as u64, i8 as u8, i16 as u16, i32 as u32, i64 as u64
);

/// A byte that is 0 or 1.
impl Wire for bool {
    const LAYOUT: u64 = layout::manual("bool", 0);
    const BYTES_MAX: usize = 1;
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8((*self).into());
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        match input.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadBytes),
        }
    }
}

impl Wire for () {
    const LAYOUT: u64 = layout::of_parts(&[]);
    const BYTES_MAX: usize = 0;
    #[inline]
    fn encode(&self, _: &mut Writer<'_>) {}
    #[inline]
    fn decode(_: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(())
    }
}

/// Whether there is one, as a `bool`, then it.
impl<T: Wire> Wire for Option<T> {
    const LAYOUT: u64 = layout::of_parts(&[layout::manual("Option", 0), T::LAYOUT]);
    const BYTES_MAX: usize = 1 + T::BYTES_MAX;
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        self.is_some().encode(out);
        if let Some(item) = self {
            item.encode(out);
        }
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        match bool::decode(input)? {
            true => T::decode(input).map(Some),
            false => Ok(None),
        }
    }
}

/// Item by item: the length is the type's.
impl<T: Wire + Copy, const N: usize> Wire for [T; N] {
    const LAYOUT: u64 = layout::of_parts(&[layout::manual("array", N as u64), T::LAYOUT]);
    const BYTES_MAX: usize = N * T::BYTES_MAX;
    #[inline]
    fn encode(&self, out: &mut Writer<'_>) {
        T::encode_all(self, out);
    }
    #[inline]
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        T::decode_all(input)
    }
}

macro_rules! wire_tuples {
    ($($($item:ident: $place:tt),*;)*) => {$(
        impl<$($item: Wire),*> Wire for ($($item,)*) {
            const LAYOUT: u64 = layout::of_parts(&[$($item::LAYOUT),*]);
            const BYTES_MAX: usize = layout::bytes_of_parts(&[$($item::BYTES_MAX),*]);
            #[inline]
            fn encode(&self, out: &mut Writer<'_>) {
                $(self.$place.encode(out);)*
            }
            #[inline]
            fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
                Ok(($($item::decode(input)?,)*))
            }
        }
    )*};
}
wire_tuples! {
    A: 0, B: 1;
    A: 0, B: 1, C: 2;
    A: 0, B: 1, C: 2, D: 3;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_tag_of_every_object_comes_back_and_takes_a_byte_for_the_first_sixteen() {
        for object in 0..=u8::MAX {
            for flags in 0..8 {
                let mut bytes = Vec::new();
                Writer::new(&mut bytes, &[]).tag(object, flags);
                assert_eq!(bytes.len(), if object < 16 { 1 } else { 2 });
                let mut input = Reader::new(&bytes, &[]);
                assert_eq!(input.tag(), Ok((object, flags)));
                assert!(input.is_empty());
            }
        }
        let beyond = [0x80, 0x10];
        assert_eq!(Reader::new(&beyond, &[]).tag(), Err(BadBytes));
        assert_eq!(Reader::new(&beyond[..1], &[]).tag(), Err(BadBytes));
    }

    proptest! {
        #[test]
        fn numbers_come_back(a: u64, b: u32, c: u16) {
            let mut bytes = Vec::new();
            let mut out = Writer::new(&mut bytes, &[9, 10]);
            out.varint(a);
            out.address(b);
            out.address(10);
            out.u24(b & 0xff_ffff);
            (c, a).encode(&mut out);
            let mut input = Reader::new(&bytes, &[9, 10]);
            prop_assert_eq!(input.varint(), Ok(a));
            prop_assert_eq!(input.address(), Ok(b));
            prop_assert_eq!(input.address(), Ok(10));
            prop_assert_eq!(input.u24(), Ok(b & 0xff_ffff));
            prop_assert_eq!(<(u16, u64)>::decode(&mut input), Ok((c, a)));
            prop_assert!(input.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let mut input = Reader::new(&bytes, &[1]);
            while !input.is_empty() {
                if input.varint().is_err() || input.address().is_err() || input.u16().is_err() {
                    break;
                }
            }
        }
    }
}
