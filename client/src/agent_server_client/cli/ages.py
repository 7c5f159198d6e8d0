"""How long ago events of a log happened, whatever this machine's clock says."""

import time
from collections.abc import Callable

from agent_server_client._async import AsyncClient
from agent_server_client._sync import Client
from agent_server_client.wire import Entry, moment


class Ages:
    """Tells ages of events in seconds, by the clock of the server and that of the agent, which dates the events.

    clock: seconds since the epoch.
    """

    def __init__(self, client: Client | AsyncClient, clock: Callable[[], float] = time.time) -> None:
        self._client, self._clock = client, clock
        self._behind = 0.0  #: seconds by which the agent's clock is behind the server's, as far as events tell

    def of(self, entry: Entry) -> float:
        """Seconds since an event; 0 for one without a time."""
        written = entry.event.get("timestamp")
        if not isinstance(written, str):
            return 0.0
        late = self._clock() + self._client.clock_ahead - moment(written).timestamp()
        # An event that no log keeps has just happened, and no event is of the future.
        self._behind = late if entry.seq is None else min(self._behind, late)
        return max(0.0, late - self._behind)
