-- claim_checks: take conversations that are due to be compared with their agents, those due for longest first: of the
-- sandboxes of a host, of those whose host is lost, and of those that are gone.
-- KEYS  root of the sandboxes
-- ARGV  host:text  lease:int ms  most:int conversations  spans:spans
-- Returns  (lease_end:micros entries:bytes*) | missing: none of the first 256 that are due is this host's
-- Cost  O(log c): c conversations that are or will be due, and what a host that was just lost costs (beat_host)
-- Idempotent  a repeat takes others; those that nobody checks are due again when the lease ends
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- include: _lost.lua
look_after_the_lost(spans.host, spans.start)
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
