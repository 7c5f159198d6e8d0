"""The tokens of one-time links: who can make one, what it is about, and until when."""

from uuid import uuid4

import pytest
from itsdangerous import URLSafeSerializer

from core.approvals import ApprovalLinks, LinkForged
from core.wire import Micros, now
from tests.refusals import taken

OLD, NEW = "an old key of the server", "the new key of the server"
DIGEST = "d" * 64


def links(*secret_keys, url="https://agents.example/", seconds=3600):
    return ApprovalLinks(secret_keys, public_url=url, seconds=seconds)


def token(maker, action_id="act", **options) -> str:
    url = maker.make(str(uuid4()), action_id, DIGEST, "chat", **options)
    return url.removeprefix("https://agents.example/approvals/")


def test_without_a_public_url_or_a_secret_key_there_is_no_link():
    assert links(NEW, url="").make(str(uuid4()), "act", DIGEST, "chat") is None
    assert links().make(str(uuid4()), "act", DIGEST, "chat") is None
    with pytest.raises(LinkForged):
        links().read(token(links(NEW)))


def test_a_link_says_what_it_is_about():
    conversation, before = str(uuid4()), now()
    url = links(NEW).make(conversation, "äct/1", DIGEST, "chat")

    assert url.startswith("https://agents.example/approvals/")
    link = links(NEW).read(url.rpartition("/")[2])
    assert link[:4] == (conversation, "äct/1", DIGEST, "chat")
    assert before + 3_600_000_000 <= link.ends <= now() + 3_600_000_000


def test_a_link_says_which_wait_it_is_about_and_one_of_an_earlier_release_says_none():
    maker, began = links(NEW), now()

    assert maker.read(token(maker, since=began)).since == began
    earlier = maker._serializer.dumps([str(uuid4()), "act", DIGEST, "chat", now()])
    assert maker.read(earlier).since == 0


def test_a_link_ends_at_the_deadline_of_its_action_if_that_is_earlier():
    soon, late = now() + 1_000_000, now() + 10**12

    assert links(NEW).read(token(links(NEW), deadline=soon)).ends == soon
    assert links(NEW).read(token(links(NEW), deadline=late)).ends < late


def test_a_link_ends_by_the_clock_of_the_store_whatever_the_host_of_its_maker_believes():
    wrong = Micros(now() + 3 * 86_400_000_000)
    maker = ApprovalLinks((NEW,), public_url="https://agents.example/", seconds=3600, clock=lambda: wrong)

    assert links(NEW).read(token(maker)).ends == wrong + 3_600_000_000


def test_all_keys_verify_and_the_first_signs():
    old, new = token(links(OLD)), token(links(NEW, OLD))

    assert links(NEW, OLD).read(old).action_id == links(NEW, OLD).read(new).action_id == "act"
    assert links(NEW).read(new).action_id == "act"
    with pytest.raises(LinkForged):
        links(OLD).read(new)
    with pytest.raises(LinkForged):
        links("another key of a server").read(new)


def test_a_token_that_was_changed_anywhere_is_forged():
    whole = token(links(NEW))
    for place in range(len(whole)):
        other = "A" if whole[place] != "A" else "B"
        changed = whole[:place] + other + whole[place + 1 :]
        try:  # the last letter of a signature has bits that mean nothing: it is the same link, with the same use
            assert links(NEW).read(changed) == links(NEW).read(whole)
            assert place == len(whole) - 1
        except LinkForged:
            pass


def test_a_malformed_token_is_refused_as_forged():
    texts = ("", ".", "x", "a.b.c", "é", "\ud800", "." * 9000, "eyJ9.AAAA")
    assert taken(texts, links(NEW).read, LinkForged) == []


def test_a_signature_of_another_purpose_is_forged():
    words = [str(uuid4()), "act", DIGEST, "chat", now() + 10**12]
    for salt in (b"itsdangerous", "agent-server approval link"):
        made = URLSafeSerializer(NEW, salt=salt).dumps(words)
        with pytest.raises(LinkForged):
            links(NEW).read(made)
