-- _rests: whether a conversation may become cold. `root` is KEYS[1].

-- Nothing runs, nothing waits, no decision is on its way, and the log is here.
local function rests(status, cold, delivery)
  return status ~= 'running' and status ~= 'waiting_for_confirmation' and not cold and not delivery
    and redis.call('HLEN', root .. ':pending') == 0
end
