-- close_destinations: end waits for destinations and budgets whose deadline has passed, whose sandbox has ended, or
-- that a new rule decides. Each end is audited.
-- KEYS  root of the sandboxes
-- ARGV  time:text now, UTC with Z  kept:int ms for which a day's audit is kept  most:int waits that a call ends
-- Returns  (closed:int unnoted:int): number of ended waits, and of audit entries that are not noted
-- Cost  O(m log w), after a rule was made O(w): m ended of w waits
-- Idempotent  a repeat finds them ended
-- Kept  not proven: no response reports it, and a repeat ends them again
-- include: _sha256.lua
-- include: _destinations.lua
local by, closed = {time = time, kept = kept}, 0
local function reply() return {closed, redis.call('XLEN', root .. ':unnoted')} end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', root .. ':asking_due', '-inf', now, 'LIMIT', 0, most)) do
  local sandbox, at = string.match(member, '^(%S+) (%S+)$')
  if current_request(by, sandbox, at) then redis.call('ZREM', root .. ':asking_due', member) else forget(sandbox, at) end
  closed = closed + 1
end
local ended = redis.call('ZRANGE', root .. ':asking_ended', 0, most - closed - 1, 'WITHSCORES')
for i = 1, closed < most and #ended or 0, 2 do
  local sandbox, name, port = string.match(ended[i], '^(%S+) (%S+):(%d+)$')
  local item = {name = name, port = port, since = string.format('%.0f', ended[i + 1])}
  audit(by, 'deleted', '{"address":"","kind":"deletion","name":""}', {name = name, port = port, sandbox = sandbox,
    digest = digest_of(sandbox, item), reason = '"The sandbox has ended"'})
  redis.call('ZREM', root .. ':asking_ended', ended[i])
  closed = closed + 1
end
if redis.call('HEXISTS', root .. ':destinations', 'ruled') == 0 then return reply() end
for _, member in ipairs(redis.call('ZRANGE', root .. ':asking', 0, -1)) do
  if closed >= most then return reply() end
  local sandbox, at = string.match(member, '^(%S+) (%S+)$')
  local item = current_request(by, sandbox, at)
  local rule = item and item.state == 'waiting' and item.port ~= '0' and ruled(item.name, item.port)
  if rule then
    decide_by_rule(by, sandbox, at, item, rule)
    closed = closed + 1
  end
end
redis.call('HDEL', root .. ':destinations', 'ruled')
return reply()
