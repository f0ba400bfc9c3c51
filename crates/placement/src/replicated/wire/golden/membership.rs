//! The vectors of joining, leaving and closing.

use crate::vectors::{self, Vector, number, part, to_runs};
use crate::{Incarnation, MemberId};

use super::super::membership::*;
use super::{Fields, field};

/// What the reader makes of a body.
pub(super) fn fields_of(kind: u8, body: &[u8]) -> Fields {
    let stream = |stream: &StreamSet| {
        let (member, incarnation) = (stream.member.0, stream.incarnation.0);
        let (prefix, runs) = (stream.prefix, to_runs(&stream.runs));
        field(
            "stream",
            format!("member={member} incarnation={incarnation} prefix={prefix} runs={runs}"),
        )
    };
    match Membership::read(kind, body).unwrap() {
        Membership::Join { incarnation } => vec![field("incarnation", incarnation.0)],
        Membership::JoinConfirm {
            member,
            incarnation,
            head,
        } => vec![
            field("member", member.0),
            field("incarnation", incarnation.0),
            field("head", head),
        ],
        Membership::JoinVector { streams } => streams.iter().map(stream).collect(),
        Membership::Leave { head } => vec![field("head", head)],
        Membership::LeaveConfirm { member, applied } => {
            vec![field("member", member.0), field("applied", applied)]
        }
        Membership::Close { stream: closed } => vec![stream(&closed)],
    }
}

/// What the writer makes of a vector's fields.
pub(super) fn body_of(kind: u8, vector: &Vector) -> Vec<u8> {
    let member = || MemberId(vector.number("member"));
    let incarnation = || Incarnation(vector.number("incarnation"));
    let stream = |text: &str| StreamSet {
        member: MemberId(number(part(text, "member"))),
        incarnation: Incarnation(number(part(text, "incarnation"))),
        prefix: number(part(text, "prefix")),
        runs: vectors::runs(part(text, "runs")),
    };
    let frame = match kind {
        KIND_JOIN => Membership::Join {
            incarnation: incarnation(),
        },
        KIND_JOIN_CONFIRM => Membership::JoinConfirm {
            member: member(),
            incarnation: incarnation(),
            head: vector.number("head"),
        },
        KIND_JOIN_VECTOR => Membership::JoinVector {
            streams: vector.all("stream").map(stream).collect(),
        },
        KIND_LEAVE => Membership::Leave {
            head: vector.number("head"),
        },
        KIND_LEAVE_CONFIRM => Membership::LeaveConfirm {
            member: member(),
            applied: vector.number("applied"),
        },
        _ => Membership::Close {
            stream: stream(vector.text("stream")),
        },
    };
    assert_eq!(frame.kind(), kind);
    let mut body = Vec::new();
    frame.write(&mut body);
    body
}
