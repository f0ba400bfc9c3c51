//! The vectors of joining, leaving and closing.

use crate::vectors::{Vector, number, part};
use crate::{Incarnation, MemberId};

use super::{Fields, field};
use crate::envelope::*;
use crate::membership::{Held, MembershipFrame};

/// Members with commas between them, or `none`.
fn names(text: &str) -> Vec<MemberId> {
    let names = text.split(',').filter(|name| *name != "none");
    names.map(|name| MemberId(number(name))).collect()
}

fn to_names(members: &[MemberId]) -> String {
    if members.is_empty() {
        return "none".into();
    }
    let each: Vec<String> = members.iter().map(|member| member.0.to_string()).collect();
    each.join(",")
}

/// What the reader makes of a body.
pub(super) fn fields_of(kind: u8, body: &[u8]) -> Fields {
    let held = |held: &Held| {
        let (member, incarnation) = (held.member.0, held.incarnation.0);
        let (prefix, of) = (held.prefix, to_names(&held.of));
        let flags = u8::from(held.loose) | u8::from(held.settled) << 1;
        field(
            "held",
            format!(
                "member={member} incarnation={incarnation} prefix={prefix} flags={flags} of={of}"
            ),
        )
    };
    match MembershipFrame::read(kind, body).unwrap() {
        MembershipFrame::Join { incarnation } => vec![field("incarnation", incarnation.0)],
        MembershipFrame::JoinConfirm {
            member,
            incarnation,
            head,
        } => vec![
            field("member", member.0),
            field("incarnation", incarnation.0),
            field("head", head),
        ],
        MembershipFrame::JoinVector { held: all } => all.iter().map(held).collect(),
        MembershipFrame::Leave { head } => vec![field("head", head)],
        MembershipFrame::LeaveConfirm { member, applied } => {
            vec![field("member", member.0), field("applied", applied)]
        }
        MembershipFrame::Close { held: closed } => vec![held(&closed)],
    }
}

/// What the writer makes of a vector's fields.
pub(super) fn body_of(kind: u8, vector: &Vector) -> Vec<u8> {
    let member = || MemberId(vector.number("member"));
    let incarnation = || Incarnation(vector.number("incarnation"));
    let held = |text: &str| {
        let flags: u8 = number(part(text, "flags"));
        Held {
            member: MemberId(number(part(text, "member"))),
            incarnation: Incarnation(number(part(text, "incarnation"))),
            prefix: number(part(text, "prefix")),
            loose: flags & 1 != 0,
            settled: flags & 2 != 0,
            of: names(part(text, "of")),
        }
    };
    let frame = match kind {
        KIND_JOIN => MembershipFrame::Join {
            incarnation: incarnation(),
        },
        KIND_JOIN_CONFIRM => MembershipFrame::JoinConfirm {
            member: member(),
            incarnation: incarnation(),
            head: vector.number("head"),
        },
        KIND_JOIN_VECTOR => MembershipFrame::JoinVector {
            held: vector.all("held").map(held).collect(),
        },
        KIND_LEAVE => MembershipFrame::Leave {
            head: vector.number("head"),
        },
        KIND_LEAVE_CONFIRM => MembershipFrame::LeaveConfirm {
            member: member(),
            applied: vector.number("applied"),
        },
        _ => MembershipFrame::Close {
            held: held(vector.text("held")),
        },
    };
    assert_eq!(frame.kind(), kind);
    let mut body = Vec::new();
    frame.write(&mut body);
    body
}
