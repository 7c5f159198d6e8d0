-- claim_checks: claim conversations that are due for comparison with their agents, the longest overdue first: of a
-- host's sandboxes, of lost hosts, and of deleted sandboxes.
-- KEYS  root of the sandboxes
-- ARGV  host:text  lease:int ms  most:int conversations  spans:spans
-- Returns  (lease_end:micros entries:bytes*) | missing: none of the first 256 due ones is this host's
-- Cost  O(log c): c conversations in the due index plus the cost of newly lost hosts (beat_host)
-- Idempotent  a repeat claims others; unchecked ones are due again when the lease ends
-- Kept  not proven: the work of a lost lease is claimed again
-- include: _lost.lua
mark_lost_sandboxes(spans.host, spans.start)
local lease_end = string.format('%.0f', now + lease * 1000)
local reply = {lease_end}
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', root .. ':checks', '-inf', now, 'LIMIT', 0, 256)) do
  if #reply > most then break end
  local status, of = unpack(redis.call('HMGET', root .. ':box:' .. (string.match(entry, '(%S+)$') or ''), 'status', 'host'))
  if not status or status == 'MISSING' or of == host then
    redis.call('ZADD', root .. ':checks', lease_end, entry)
    reply[#reply + 1] = entry
  end
end
return #reply > 1 and reply
