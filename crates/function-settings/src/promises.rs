//! Choices for the objects of a function that together cannot keep its promises: each is refused with an alternative.

use super::objects::{Chosen, Placement, Sharing};
use super::{CHOICE, Description, ObjectKind};
use asterism_notation::suggestion;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};

/// Refuses combinations that cannot keep what the function promises.
pub(super) fn check<S>(
    function: &Description<S>,
    chosen: &[Chosen<'_>],
    sharing: Sharing,
    report: &mut Report,
) {
    for together in function.together {
        let objects: Vec<_> = together
            .objects
            .iter()
            .filter_map(|name| chosen.iter().find(|one| one.object.name == *name))
            .collect();
        let apart = objects.windows(2).find(|pair| {
            pair[0].placement.is_some()
                && pair[1].placement.is_some()
                && pair[0].placement != pair[1].placement
        });
        if let Some(pair) = apart {
            report.add(apart_error(pair, together.otherwise));
        } else if sharing.members * sharing.instances > 1
            && let Some(one) = objects.iter().find(|one| {
                one.placement.is_some_and(|placement| {
                    !matches!(placement, Placement::Replicated | Placement::Remote)
                })
            })
        {
            let names =
                suggestion::ticked(together.objects.iter().copied()).replace(" or ", " and ");
            report.add(
                Diagnostic::error(
                    format!(
                        "{names} are not shared, but there are {} instances",
                        sharing.members * sharing.instances
                    ),
                    one.values.span_of(CHOICE.placement),
                )
                .label(format!("so {}", together.otherwise))
                .help(
                    "choose placement = \"replicated\" for all of them, or run a single instance",
                ),
            );
        }
    }
    for one in chosen {
        if one.object.kind == ObjectKind::TokenBucket
            && one.placement == Some(Placement::Replicated)
            && one.values.has(CHOICE.accuracy)
            && one.values.get(CHOICE.accuracy) == Some("exact")
        {
            report.add(
                Diagnostic::error(
                    format!("`{}` cannot be exact on replicas", one.object.name),
                    one.values.span_of(CHOICE.accuracy),
                )
                .label("hosts learn of tokens spent elsewhere only later")
                .help("choose accuracy = \"shared\": each host gets an equal share of the rate")
                .help("or choose placement = \"local\": the rate then holds for each instance"),
            );
        }
        if one.placement == Some(Placement::Local)
            && sharing.members > 1
            && one.values.place(CHOICE.placement).is_some()
            && one.object.kind == ObjectKind::Counter
        {
            report.add(
                Diagnostic::warning(
                    format!("each host counts its own `{}`", one.object.name),
                    one.values.span_of(CHOICE.placement),
                )
                .help("choose placement = \"replicated\" for the sum over all hosts"),
            );
        }
    }
}

fn apart_error(pair: &[&Chosen<'_>], otherwise: &str) -> Diagnostic {
    let word = |one: &Chosen<'_>| one.placement.map_or("", Placement::word);
    let (first, second) = (pair[0], pair[1]);
    // At the one that is written and differs from `replicated`, if there is such.
    let (at, other) = if second.values.place(CHOICE.placement).is_some()
        && word(second) != "replicated"
        || first.values.place(CHOICE.placement).is_none()
    {
        (second, first)
    } else {
        (first, second)
    };
    let mut diagnostic = Diagnostic::error(
        format!(
            "`{}` and `{}` need the same placement",
            first.object.name, second.object.name
        ),
        at.values.span_of(CHOICE.placement),
    )
    .label(format!("`{}` is {}", at.object.name, word(at)));
    if other.values.place(CHOICE.placement).is_some() {
        diagnostic = diagnostic.also(
            other.values.span_of(CHOICE.placement),
            format!("`{}` is {}", other.object.name, word(other)),
        );
    } else {
        diagnostic = diagnostic.help(format!(
            "`{}` is {} unless configured otherwise",
            other.object.name,
            word(other)
        ));
    }
    let is_any = |placement: &str| [first, second].iter().any(|one| word(one) == placement);
    let choose = ["remote", "replicated"]
        .into_iter()
        .find(|word| is_any(word));
    let choose = choose.unwrap_or("local");
    diagnostic
        .help(format!("placed apart, {otherwise}"))
        .help(format!("choose placement = \"{choose}\" for both"))
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::DescribedObject;
    use crate::objects::read;
    use asterism_toml_schema::kind::{Kind, Word};
    use asterism_toml_schema::section::{Default, Field, Section};
    use toml::de::DeTable;

    static BUCKET: Section = Section {
        path: "function.limiter.state.tokens",
        meaning: "For this test.",
        fields: &[
            Field {
                name: "placement",
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "local",
                            meaning: ".",
                        },
                        Word {
                            word: "replicated",
                            meaning: ".",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"replicated\""),
                meaning: ".",
            },
            Field {
                name: "delay",
                kind: Kind::Duration {
                    least: Duration::ZERO,
                    most: Duration::MAX,
                },
                default: Default::Unset("."),
                meaning: ".",
            },
            Field {
                name: "accuracy",
                kind: Kind::Choice {
                    allowed: &[
                        Word {
                            word: "exact",
                            meaning: ".",
                        },
                        Word {
                            word: "shared",
                            meaning: ".",
                        },
                    ],
                    refused: &[],
                },
                default: Default::Is("\"shared\""),
                meaning: ".",
            },
        ],
    };

    static TOKENS: [DescribedObject; 1] = [DescribedObject {
        name: "tokens",
        kind: ObjectKind::TokenBucket,
        section: &BUCKET,
    }];

    fn limiter(text: &str) -> Report {
        let function = Description::<crate::Settings> {
            name: "limiter",
            settings: &BUCKET,
            objects: &TOKENS,
            together: &[],
            build: |_, _| None,
        };
        let mut report = Report::new("test.toml", text);
        let table = DeTable::parse(text).unwrap();
        let sharing = Sharing {
            members: 3,
            instances: 1,
            is_acked: false,
        };
        let choices = read(
            &function,
            table.get_ref(),
            table.span(),
            sharing,
            &mut report,
        );
        assert_eq!(choices.is_some(), report.errors() == 0);
        report
    }

    #[test]
    fn an_exact_token_bucket_on_replicas_is_refused() {
        let refused =
            limiter("tokens = { placement = \"replicated\", accuracy = \"exact\" }").render(false);
        assert!(refused.contains("cannot be exact on replicas"), "{refused}");
        assert!(refused.contains("accuracy = \"shared\""), "{refused}");
        assert_eq!(limiter("tokens = { accuracy = \"shared\" }").errors(), 0);
        assert_eq!(
            limiter("tokens = { placement = \"local\", accuracy = \"exact\" }").errors(),
            0
        );
    }
}
