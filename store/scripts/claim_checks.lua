-- claim_checks: take conversations that are due to be compared with their agents, those due for longest first: of the
-- sandboxes of a host, of those whose host is lost, and of those that are gone.
-- KEYS  1 root of the sandboxes
-- ARGV  1 host   2 lease, ms   3 most conversations   4 a heartbeat that is older, µs, is lost
--       5 a sandbox that waits longer for a host, µs, has failed
-- Returns  {end of the lease in µs, entry …} | false: none of the first 256 that are due is this host's
-- Cost  O(log c): c conversations that are or will be due, and what a host that was just lost costs (beat_host)
-- Idempotent  a repeat takes others; those that nobody checks are due again when the lease ends
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- include: _lost.lua
local host, lease, most, host_span, start_span = unpack(ARGV)
look_after_the_lost(host_span, start_span)
local lease_end = string.format('%.0f', now + lease * 1000)
local reply = {lease_end}
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', root .. ':checks', '-inf', now, 'LIMIT', 0, 256)) do
  if #reply > tonumber(most) then break end
  local status, of = unpack(redis.call('HMGET', root .. ':box:' .. (string.match(entry, '(%S+)$') or ''), 'status', 'host'))
  if not status or status == 'MISSING' or of == host then
    redis.call('ZADD', root .. ':checks', lease_end, entry)
    reply[#reply + 1] = entry
  end
end
return #reply > 1 and reply
