"""Names on the way out: what a destination is, and what a spec's hosts allow."""

from core.egress import PRESETS, AllowedHost, allows, destination_name
from tests.refusals import taken

ADDRESSES = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.0.0.1",
    "0x7f000001",
    "0177.0.0.1",
    "1.1.1.1",
    "10.0.0.1",
    "[::1]",
    "::1",
    "::ffff:127.0.0.1",
    "1.1.1.1.",
]


def test_a_name_is_read_in_small_letters_without_its_last_dot():
    assert destination_name("Example.ORG.") == "example.org"
    assert destination_name("xn--bcher-kva.example") == "xn--bcher-kva.example"
    assert destination_name("_acme.a-b.example") == "_acme.a-b.example"


def test_an_address_is_no_name_in_any_form():
    assert taken(ADDRESSES, destination_name, ValueError) == []


def test_what_is_no_name_is_refused():
    wrong = [
        "",
        ".",
        "org",
        "localhost",
        "a..org",
        "-a.org",
        "a-.org",
        "a b.org",
        "a/b.org",
        "a@b.org",
        "bücher.example",
    ]
    wrong += ["a.org\0.evil.org", "a.org:443", "*.org", "a.org\r\nX: y", f"{'a' * 64}.org", "a." * 130 + "org"]
    assert taken(wrong, destination_name, ValueError) == []


def test_a_host_of_a_spec_allows_its_name_at_its_port_alone():
    host = AllowedHost.read("Example.org")
    assert host.allows("example.org", 443)
    assert not host.allows("example.org", 80)
    assert not host.allows("www.example.org", 443)
    assert not host.allows("example.org.evil.net", 443)
    assert AllowedHost.read("example.org:8443").allows("example.org", 8443)


def test_a_suffix_allows_the_names_below_it_and_not_itself():
    host = AllowedHost.read("*.example.org:8443")
    assert host.allows("a.example.org", 8443)
    assert host.allows("a.b.example.org", 8443)
    assert not host.allows("example.org", 8443)
    assert not host.allows("evilexample.org", 8443)
    assert not host.allows("a.example.org", 443)


def test_a_host_that_is_no_name_or_too_wide_is_refused():
    wrong = ["*", "*.org", "*.", "*.*.org", "a.*.org", "org", "example.org:", "example.org:0", "example.org:65536"]
    wrong += ["example.org:x", "example.org:4_3", "https://example.org", "example.org/path", "1.2.3.4", "[::1]:443"]
    assert taken(wrong, AllowedHost.read, ValueError) == []


def test_the_presets_allow_packages_and_repositories():
    hosts = [host for preset in PRESETS.values() for host in preset]
    for name in ("pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "github.com", "raw.githubusercontent.com"):
        assert allows(hosts, name, 443)
    assert allows(hosts, "deb.debian.org", 80)
    assert not allows(hosts, "example.org", 443)
    assert not allows(hosts, "github.com", 22)
