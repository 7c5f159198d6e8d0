"""Why a message was not delivered. A reason is a part of a sentence without secrets, for people and logs."""


class NotDelivered(Exception):
    """A target did not take a message; the message says why."""


class TargetGone(NotDelivered):
    """A target wants no more messages."""
