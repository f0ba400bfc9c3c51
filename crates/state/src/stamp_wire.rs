//! Stamps in snapshots: the writer by its name, since its short name differs from host to host.

use crate::context::Context;
use crate::stamp::{Origin, OriginName, Stamp};
use crate::wire::{BadBytes, Reader, Writer};

/// Bytes of a stamp at most: member, incarnation, sequence.
pub(crate) const STAMP_BYTES_MAX: usize = 2 + 8 + 10;

pub(crate) fn write_stamp(context: &Context, stamp: Stamp, out: &mut Writer<'_>) {
    write_origin(context, stamp.origin, out);
    out.varint(stamp.sequence);
}

pub(crate) fn write_origin(context: &Context, origin: Origin, out: &mut Writer<'_>) {
    let name = context.origin_name(origin);
    out.u16(name.member);
    out.u64(name.incarnation);
}

/// Passes over a stamp whose writer does not matter any more.
pub(crate) fn skip_stamp(input: &mut Reader<'_>) -> Result<(), BadBytes> {
    skip_origin(input)?;
    input.varint()?;
    Ok(())
}

/// Passes over the name of a writer.
pub(crate) fn skip_origin(input: &mut Reader<'_>) -> Result<(), BadBytes> {
    input.u16()?;
    input.u64()?;
    Ok(())
}

pub(crate) fn read_stamp(context: &Context, input: &mut Reader<'_>) -> Result<Stamp, BadBytes> {
    Ok(Stamp {
        origin: read_origin(context, input)?,
        sequence: input.varint()?,
    })
}

pub(crate) fn read_origin(context: &Context, input: &mut Reader<'_>) -> Result<Origin, BadBytes> {
    let name = OriginName {
        member: input.u16()?,
        incarnation: input.u64()?,
    };
    context.origin(name).ok_or(BadBytes)
}
