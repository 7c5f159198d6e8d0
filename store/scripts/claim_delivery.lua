-- claim_delivery: claim the longest overdue delivery, with the lease of its agent.
-- While its agent has another delivery or its sandbox is STARTING, a delivery is due again a second later, and does not
-- delay others.
-- KEYS  root of the sandboxes
-- ARGV  token:text of the lease, one per claim  lease:int ms  host_span:int µs after which a heartbeat is lost
--       start_span:int µs after which a sandbox without a host has failed
-- Returns  (entry:bytes lease_end:micros status:text url:text key:text tried:int): status of the sandbox, URL of its
--          agent server, its sealed key, µs of failed attempts while the sandbox had that status
--          | missing: none of the first 256 due ones can be tried
-- Cost  O(log d): d deliveries in the due index plus the cost of newly lost hosts (beat_host)
-- Idempotent  by token: a repeat returns the same entry
-- include: _lost.lua
-- include: _delivery.lua
-- include: _tried.lua
note_supervisor()
mark_lost_sandboxes(host_span, start_span)

local function reply(entry, lease_end)
  local status, url, agent_key = unpack(agent_of(sandbox_of(entry)))
  local of, known = string.match(redis.call('HGET', root .. ':tried', entry) or '', '^(%S+) (.*)$')
  local tried = tried_for(of == status and known or nil)
  redis.call('HSET', root .. ':tried', entry, status .. ' ' .. tried .. ' ' .. now)
  return {entry, lease_end, status, url, agent_key, tried}
end

local known = redis.call('GET', root .. ':claim:' .. token)
if known then
  local _, lease_end = take(known, token, lease)
  return reply(known, lease_end)
end
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', root .. ':deliveries', '-inf', now, 'LIMIT', 0, 256)) do
  local sandbox = sandbox_of(entry)
  if field(sandbox, 'status') == 'STARTING' or is_taken(root .. ':agent:' .. sandbox, lease) then
    redis.call('ZADD', root .. ':deliveries', string.format('%.0f', now + 1000000), entry)
  else
    local _, lease_end = take(entry, token, lease)
    redis.call('SET', root .. ':claim:' .. token, entry, 'PX', lease)
    return reply(entry, lease_end)
  end
end
return false
