//! Stamps in snapshots: the writer by its name, since its short name differs from host to host.

use crate::context::Context;
use crate::stamp::{Origin, OriginName, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

/// Bytes of a stamp at most: member, incarnation, sequence.
pub const STAMP_BYTES_MAX: usize = 2 + 8 + 10;

/// Appends a stamp, its writer by name: [`STAMP_BYTES_MAX`] bytes at most.
pub fn write_stamp(context: &Context, stamp: Stamp, out: &mut Writer<'_>) {
    write_origin(context, stamp.origin, out);
    out.varint(stamp.sequence);
}

/// Appends the name of a writer: 10 bytes.
pub fn write_origin(context: &Context, origin: Origin, out: &mut Writer<'_>) {
    let name = context.origin_name(origin);
    out.u16(name.member);
    out.u64(name.incarnation);
}

/// Passes over a stamp whose writer does not matter any more.
///
/// # Errors
/// The input ends within it.
pub fn skip_stamp(input: &mut Reader<'_>) -> Result<(), BadBytes> {
    skip_origin(input)?;
    input.varint()?;
    Ok(())
}

/// Passes over the name of a writer.
///
/// # Errors
/// The input ends within it.
pub fn skip_origin(input: &mut Reader<'_>) -> Result<(), BadBytes> {
    input.u16()?;
    input.u64()?;
    Ok(())
}

/// Reads a stamp that [`write_stamp`] wrote, here or on another member.
///
/// # Errors
/// As [`read_origin`].
pub fn read_stamp(context: &Context, input: &mut Reader<'_>) -> Result<Stamp, BadBytes> {
    Ok(Stamp {
        origin: read_origin(context, input)?,
        sequence: input.varint()?,
    })
}

/// Reads the name of a writer, which gets a slot here if it has none.
///
/// # Errors
/// The input ends within it, or there is no slot left ([`Context::origin`]).
pub fn read_origin(context: &Context, input: &mut Reader<'_>) -> Result<Origin, BadBytes> {
    let name = OriginName {
        member: input.u16()?,
        incarnation: input.u64()?,
    };
    context.origin(name).ok_or(BadBytes)
}
