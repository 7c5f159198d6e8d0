"""Reads what Prometheus would read of a server."""

import httpx
from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        #: names as the sources give them: a counter's ends in `_total`
        self.families = {f"{one.name}_total" if one.type == "counter" else one.name for one in families}
        self.samples = [sample for family in families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with a name and these labels, which other labels may stand beside."""
        found = [one.value for one in self.samples if one.name == name and labels.items() <= one.labels.items()]
        assert found, f"no sample {name} {labels}"
        return sum(found)

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.samples}

    @property
    def series(self) -> set[tuple[str, frozenset]]:
        return {(one.name, frozenset(one.labels.items())) for one in self.samples}


def scrape(client: httpx.Client, **options) -> Scrape:
    """One scrape of a server, over a connection of its own: any worker may be the one that responds."""
    response = httpx.get(f"{client.base_url}/metrics", timeout=20, **options)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return Scrape(response.text)
