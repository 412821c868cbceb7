"""Laws of all templates, whatever the dialect: a new one is held to them by being listed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controlplane.adapters.engines import DIALECTS, TEMPLATES, families, vllm
from controlplane.adapters.engines.rules import inline, recording_rules
from controlplane.adapters.engines.template import Helper, Level, Rendering, Source, Span, Template, by_series
from controlplane.domain.readings import PoolSignal, Signal

RENDERING = Rendering(300.0, 15.0)
GOLDEN = Path(__file__).parent / "series.txt"
_COUNTER = re.compile(r"(?:vllm:|process_|haproxy_|DCGM_)\w+?_(?:total|sum|count|bucket)\b")
_OVER_TIME = re.compile(r"(?:rate|increase|resets)\($")


def _id(template: Template) -> str:
    return template.series


def test_every_signal_is_said_by_some_dialect() -> None:
    """All but E[L^2], which is computed from the buckets."""
    said = {(template.level, str(template.name)) for template in TEMPLATES}
    wanted = {(Level.INSTANCE, str(signal)) for signal in Signal}
    wanted |= {(Level.POOL, str(signal)) for signal in PoolSignal} - {(Level.POOL, "output_square_mean")}
    assert wanted <= said


def test_the_recorded_series_are_those_of_the_golden_list() -> None:
    """Dashboards, alerts and other people's queries read these names: a change breaks them."""
    assert "\n".join(sorted(by_series(TEMPLATES))) == GOLDEN.read_text("utf-8").strip()


@pytest.mark.parametrize("template", TEMPLATES, ids=_id)
def test_a_counter_is_never_read_as_a_value(template: Template) -> None:
    """B-042: a name that only grows stands inside rate, increase or resets."""
    for found in _COUNTER.finditer(template.promql):
        before = template.promql[: found.start()]
        assert _OVER_TIME.search(before), f"{found[0]} is read as it is in {template.promql}"


@pytest.mark.parametrize("template", TEMPLATES, ids=_id)
def test_a_template_names_every_family_it_reads_and_no_other(template: Template) -> None:
    """The keep list of the scrape configuration is made of these."""
    read = set(re.findall(r"\b((?:vllm:|process_|haproxy_|DCGM_|trimtab_door_|up\b)\w*)\{", template.promql))
    assert read <= set(template.families) | {"up"}
    optional = {name for name in template.families if name.rpartition("_")[2] in {"bucket", "sum", "count"}}
    assert set(template.families) - optional <= read


@pytest.mark.parametrize("template", TEMPLATES, ids=_id)
def test_a_template_says_how_far_back_it_looks(template: Template) -> None:
    spans = {"[$window": Span.WINDOW, "[$four": Span.FOUR_SCRAPES}
    looked = {span for text, span in spans.items() if text in template.promql}
    assert looked == ({template.span} - {Span.NOW})


@pytest.mark.parametrize("template", [t for t in TEMPLATES if t.series.endswith("_ratio")], ids=_id)
def test_a_ratio_is_bounded(template: Template) -> None:
    """B-009: 0..1 for shares, whatever the exporter's unit was; CPU counts cores."""
    assert template.low == 0.0
    assert template.high == (1024.0 if template.name is Signal.CPU else 1.0)


@pytest.mark.parametrize("template", [t for t in TEMPLATES if t.edges], ids=_id)
def test_a_quantile_knows_what_it_stands_on(template: Template) -> None:
    assert template.counted_by is not None
    assert any(t.name is template.counted_by and t.level is template.level for t in TEMPLATES)


@pytest.mark.parametrize("source", Source)
def test_every_source_has_an_age_at_each_level_it_speaks_at(source: Source) -> None:
    levels = {t.level for t in TEMPLATES if t.source is source and not isinstance(t.name, Helper)}
    aged = {t.level for t in TEMPLATES if t.source is source and str(t.name).endswith("_age")}
    assert levels <= aged


def test_one_rule_a_series_though_several_dialects_say_it() -> None:
    """A second dialect's template is joined by `or`, in the same rule."""
    other = Template(
        Signal.RUNNING, Level.INSTANCE, Source.ENGINE, "sum by ($instance) (x{$engines})", ("x",)
    )
    running = next(t for t in vllm.TEMPLATES if t.name is Signal.RUNNING)
    text = RENDERING.expression([running, other])
    assert text.count('job="engines"') == 2
    assert ") or (sum by (cluster, pool, instance_id) (x{" in text


def test_no_rule_is_rendered_twice_and_no_placeholder_is_left() -> None:
    rules = recording_rules(RENDERING)["groups"][0]["rules"]
    assert len({rule["record"] for rule in rules}) == len(rules)
    assert not [rule for rule in rules if re.search(r"\$(?!1\b)", rule["expr"])]


def test_the_inline_query_keeps_to_its_cluster_everywhere() -> None:
    text = inline(Rendering(60.0, 5.0, cluster='a"b'), TEMPLATES)
    assert text.count("job=") == text.count('cluster="a\\"b"') > 50


@pytest.mark.parametrize(("window", "interval"), [(59.9, 15.0), (0.0, 0.0), (60.0, -1.0)])
def test_a_window_below_four_scrapes_is_refused(window: float, interval: float) -> None:
    with pytest.raises(ValueError, match="at least 4 scrapes"):
        Rendering(window, interval)
    assert Rendering(60.0, 15.0).window_s == 60.0


def test_every_family_of_vllm_stands_in_a_scrape_of_the_real_engine(shared: Path) -> None:
    """Names typed from memory are the commonest mistake of a dialect; aliases of old releases apart."""
    text = (shared / "recordings/vllm_0.32.txt").read_text("utf-8")
    exported = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    old = {name for name in families(Source.ENGINE) if "vllm:time_per_output_token_seconds" in name}
    assert set(families(Source.ENGINE)) - exported == old | {"vllm:gpu_cache_usage_perc"}


def test_every_family_of_the_gateway_stands_in_a_scrape_of_a_real_one() -> None:
    """And a refusal by rule is an arrival too, counted at once."""
    text = (Path(__file__).parent / "haproxy_2.6_backend.txt").read_text("utf-8")
    samples = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}
    assert set(families(Source.GATEWAY)) <= set(samples)
    refused = samples["haproxy_backend_requests_denied_total"]
    assert samples["haproxy_backend_sessions_total"] == refused == 2


def test_bucket_edges_are_those_of_the_real_engine(shared: Path) -> None:
    """A quantile at or beyond them is no figure (B-046)."""
    text = (shared / "recordings/vllm_0.32.txt").read_text("utf-8")
    for template in vllm.TEMPLATES:
        if template.edges is not None:
            bounds = re.findall(rf'^{template.families[0]}{{.*le="([0-9.]+)"', text, re.MULTILINE)
            assert template.edges == (min(map(float, bounds)), max(map(float, bounds)))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_rules_for_a_short_window_are_valid(tmp_path: Path) -> None:
    from controlplane.adapters.engines.rules import recording_text

    path = tmp_path / "r.yaml"
    path.write_text(recording_text(Rendering(6.0, 1.5, cluster='x"}', engines_job="a\nb")))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dialects_are_listed() -> None:
    """The list is the one place where a dialect is added."""
    assert sum(len(dialect.TEMPLATES) for dialect in DIALECTS) == len(TEMPLATES)
