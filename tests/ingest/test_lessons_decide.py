import pytest
from kwiki_ingest.lessons.decide import Verdict, decide
from kwiki_ingest.lessons.errors import LessonRefusedError
from kwiki_ingest.page import Confidence, Knob, Lesson, Status

from tests.ingest.lessons_samples import effect, lesson, measured


def weigh(new: Lesson, *standing: Lesson) -> Verdict:
    return decide(new, standing, lambda _run: True)


def test_the_first_lesson_is_added_as_a_measured_candidate() -> None:
    verdict = weigh(measured("r1"))
    assert verdict.action == "added"
    assert (verdict.page.status, verdict.page.confidence) == (Status.CANDIDATE, Confidence.MEASURED)


def test_what_the_compiler_says_is_no_measurement() -> None:
    said = measured("r1")
    assert said.effect is not None
    compiled = said.model_copy(update={"effect": said.effect.model_copy(update={"metric": "registers"})})
    assert weigh(compiled).page.confidence is Confidence.EXPERIMENTAL


def test_spelling_does_not_make_a_new_claim() -> None:
    again = lesson(
        id="other", claim="load 128 BITS per thread  where rows are aligned to 16 bytes", dtype=("BFloat16",)
    )
    assert weigh(again, lesson()).action == "duplicate"


def test_a_comparison_turned_round_is_another_claim() -> None:
    below = lesson(claim="Use it when hidden_size < 4096 only", knobs=())
    above = lesson(claim="Use it when hidden_size > 4096 only", knobs=(), id="above")
    assert weigh(above, below).action == "added"


def test_a_second_run_outside_the_noise_confirms() -> None:
    verdict = weigh(measured("r2", 0.7, id="again", claim="Wide loads are quicker."), measured("r1", 0.8))
    assert verdict.action == "merged"
    page = verdict.page
    assert (page.id, page.status, page.confidence) == ("wide-loads", Status.CONFIRMED, Confidence.VERIFIED)
    assert page.claim == lesson().claim
    assert [entry.run for entry in page.evidence] == ["r1", "r2"]
    assert page.effect is not None
    assert (page.effect.n, page.effect.before, page.effect.after) == (300, 100.0, 80.0)
    assert page.effect.ci95 == pytest.approx((0.68, 0.82))


def test_the_same_run_proves_nothing_twice() -> None:
    assert weigh(measured("r1", 0.7, id="again"), measured("r1", 0.8)).action == "duplicate"


def test_a_first_run_whose_summary_is_gone_does_not_confirm() -> None:
    verdict = decide(measured("r2"), [measured("r1")], lambda run: run == "r2")
    assert (verdict.action, verdict.page.status) == ("merged", Status.CANDIDATE)


def test_runs_inside_the_noise_agree_but_do_not_confirm() -> None:
    verdict = weigh(measured("r2", 1.0), measured("r1", 1.01))
    assert (verdict.action, verdict.page.status) == ("merged", Status.CANDIDATE)


def test_noise_neither_confirms_nor_disputes_an_effect() -> None:
    verdict = weigh(measured("r2", 1.0, id="noise"), measured("r1", 0.8))
    assert verdict.action == "added"
    assert verdict.page.related == ("wide-loads",)


def test_the_opposite_sign_disputes_both() -> None:
    verdict = weigh(measured("r2", 1.3, id="slower", claim="Wide loads make it slower."), measured("r1", 0.8))
    assert verdict.action == "disputed"
    (old,) = verdict.others
    assert (verdict.page.status, verdict.page.contradicts) == (Status.DISPUTED, ("wide-loads",))
    assert (old.status, old.contradicts) == (Status.DISPUTED, ("slower",))
    assert old.claim == lesson().claim


def knobs(**settings: bool | int) -> tuple[Knob, ...]:
    return tuple(Knob(name=name, op="==", value=value) for name, value in settings.items())


def test_a_over_b_and_b_over_a_dispute_each_other() -> None:
    wide = measured("r1", effect=effect(baseline="bits=64, reload=false"), knobs=knobs(bits=128, reload=True))
    narrow = {"id": "narrow", "claim": "Narrow beats wide.", "knobs": knobs(bits=64, reload=False)}
    crossed = effect(baseline="reload=True, bits = 128")
    assert weigh(measured("r2", effect=crossed, **narrow), wide).action == "disputed"
    slower = effect(1.2, baseline="reload=True, bits = 128")
    assert weigh(measured("r2", effect=slower, **narrow), wide).action == "added"
    elsewhere = measured("r2", effect=crossed, valid_when="num_tokens == 1", **narrow)
    assert weigh(elsewhere, wide).action == "added"


def test_figures_without_a_run_neither_dispute_nor_confirm() -> None:
    claimed = lesson(id="claimed", claim="Wide loads are slow.", effect=effect(1.3))
    assert weigh(claimed, measured("r1")).action == "added"
    assert weigh(measured("r1", id="proven"), lesson(effect=effect(0.7, n=9))).page.status is Status.CANDIDATE
    merged = weigh(measured("r1", id="proven"), lesson(effect=effect(0.7, n=9)))
    assert (merged.action, merged.page.effect) == ("merged", effect(0.8))


def test_a_confirmed_lesson_can_be_disputed_and_stays_so_when_more_runs_agree() -> None:
    confirmed = measured("r1", status=Status.CONFIRMED, confidence=Confidence.VERIFIED)
    disputed = weigh(measured("r2", 1.3, id="slower"), confirmed)
    assert disputed.action == "disputed"
    more = weigh(measured("r3", 0.8, id="more"), *disputed.others, disputed.page)
    assert (more.action, more.page.id, more.page.status) == ("merged", "wide-loads", Status.DISPUTED)


@pytest.mark.parametrize(
    "other",
    [
        {"arch": ("sm_100a",)},
        {"op": "softmax"},
        {"dtype": ("float16",)},
        {"technique": "cluster-split"},
        {"dsl": ">=5"},
        {"valid_when": "hidden_size >= 4096"},
        {"knobs": (Knob(name="vector_bits", op="==", value=64),)},
        {"effect": effect(1.3, metric="host_us")},
        {"effect": effect(1.3, baseline="F.rms_norm")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_scope_condition_or_yardstick_never_disputes(other: dict[str, object]) -> None:
    assert (
        weigh(measured("r2", **({"ratio": 1.3} | other), id="there"), measured("r1", 0.8)).action == "added"
    )


def test_scopes_link_to_each_other() -> None:
    verdict = weigh(measured("r2", id="blackwell", arch=("sm_100a",)), measured("r1"))
    assert verdict.page.related == ("wide-loads",)
    assert verdict.others[0].related == ("blackwell",)


def test_words_alone_never_merge_an_unmeasured_opposite() -> None:
    hurts = lesson(
        id="hurts", knobs=(), claim="Streaming hints hurt RMSNorm rows that are read a second time from L2"
    )
    helps = hurts.model_copy(update={"id": "helps", "claim": hurts.claim.replace("hurt", "help")})
    assert weigh(helps, hurts).action == "added"


def test_a_run_gives_an_unmeasured_claim_its_effect_only_when_the_claim_is_the_same() -> None:
    assert weigh(measured("r1", id="m"), lesson()).page.effect == effect(0.8)
    assert weigh(measured("r1", id="m", claim="Something that words differently"), lesson()).action == "added"


def test_nearest_names_five_lessons_of_the_scope() -> None:
    standing = [
        lesson(
            id=f"n{i}", claim=f"Claim about thing number {i} here", knobs=(Knob(name="k", op="==", value=i),)
        )
        for i in range(7)
    ]
    verdict = weigh(lesson(id="new", claim="Claim about thing number 3 now", knobs=()), *standing)
    assert len(verdict.nearest) == 5
    assert verdict.nearest[0] == "n3"


def test_stronger_evidence_supersedes_and_the_old_page_retires() -> None:
    verdict = weigh(measured("r1", id="new", claim="Measured at last.", supersedes=("wide-loads",)), lesson())
    assert verdict.action == "added"
    (old,) = verdict.others
    assert (old.status, old.superseded_by) == (Status.RETIRED, "new")


def test_a_newer_dsl_supersedes_only_with_evidence() -> None:
    newer = {"id": "new", "dsl": ">=5", "supersedes": ("wide-loads",)}
    assert weigh(measured("r2", **newer), measured("r1")).action == "added"
    with pytest.raises(LessonRefusedError, match=r"^supersedes: wide-loads gives way only"):
        weigh(lesson(**newer), measured("r1"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"supersedes": ("gone",)}, "no lesson gone"),
        ({"supersedes": ("wide-loads",), "op": "softmax"}, "another arch"),
    ],
)
def test_supersedes_outside_the_rules_is_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(LessonRefusedError, match=sentence):
        weigh(measured("r2", id="new", **change), measured("r1"))


def test_a_retired_lesson_is_neither_merged_nor_disputed() -> None:
    retired = measured("r1", status=Status.RETIRED, superseded_by="new")
    assert weigh(measured("r2", id="x"), retired).action == "added"
    assert weigh(measured("r2", 1.3, id="x"), retired).action == "added"
    assert "retired in favour of new" in weigh(measured("r1", id="x"), retired).reason
