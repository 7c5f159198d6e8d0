"""A histogram of events: the window and the buckets that a client asks for, and the counts."""

from marshmallow import fields

from schemas.fields import BaseSchema, Choice, Instant, WholeNumber
from wire import utc_time

#: buckets of one histogram: more than a plot of a screen's width can show apart
MOST_BUCKETS = 200


class HistogramQuery(BaseSchema):
    """The window, and how its events are counted. Source: docs/wire.md, 3."""

    by = Choice("kind", "source", load_default="kind", metadata={"description": "What the series are."})
    buckets = WholeNumber(
        least=1,
        most=MOST_BUCKETS,
        load_default=60,
        metadata={"description": "The number of equal parts of the window."},
    )
    body = fields.String(metadata={"description": "Count messages alone that contain this text, whatever its case."})
    since = Instant(
        data_key="timestamp__gte",
        metadata={"description": "Start of the window; absent: the first event's time. Naive is UTC."},
    )
    until = Instant(
        data_key="timestamp__lt",
        metadata={"description": "End of the window; absent: just after the last event's time. Naive is UTC."},
    )


def _time(attribute: str, name: str, description: str) -> fields.Function:
    """A time that is kept in µs, null where there is none."""
    return fields.Function(
        lambda found: None if getattr(found, attribute) is None else utc_time(getattr(found, attribute)),
        data_key=name,
        metadata={"type": ["string", "null"], "format": "date-time", "description": description},
    )


class Histogram(BaseSchema):
    """The events of a window, each in one bucket of one series."""

    start = _time("start", "from", "Start of the window.")
    end = _time("end", "to", "End of the window, exclusive.")
    bucket_seconds = fields.Float(
        required=True, metadata={"description": "Bucket number i, from 0, begins so many seconds times i after `from`."}
    )
    total = fields.Integer(required=True)
    series = fields.Dict(
        keys=fields.String(),
        values=fields.List(fields.Integer()),
        required=True,
        metadata={
            "description": "The events in each bucket by name, the most frequent name first. Where there are more than "
            "20 names, `other` has the sum of all but 19."
        },
    )
