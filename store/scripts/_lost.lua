-- _lost: the work of lost supervisors, which every reader of sandboxes does.
-- Spans in µs: age at which a host's heartbeat is lost, and time after which a sandbox without a host has failed.
-- Shape  spans(host:int start:int)
-- include: _sandbox.lua
local BEATS = 2000000 -- maximum µs between two heartbeats that is not silence

-- Returns whether the supervisor of a host is silent for too long. The count begins when a caller first finds it silent
-- (docs/durability.md), so that neither a step of the clock, nor a suspended machine, nor a time without callers makes
-- a host lost. span: µs since the last heartbeat.
local function is_silent(host, span)
  local beat = redis.call('ZSCORE', root .. ':hosts', host)
  if not beat then return true end
  if math.abs(now - beat) <= BEATS then return false end
  local of, since = string.match(redis.call('HGET', root .. ':silent', host) or '', '^(%S+) (%S+)$')
  if of == beat and now - since >= 0 then return now - since >= math.max(span - BEATS, BEATS) end
  redis.call('HSET', root .. ':silent', host, beat .. ' ' .. now)
  return false
end

-- include: _presence.lua

-- µs of an agent's lease after a gap: longer than a call of an agent server, unless AGENT_SECONDS is longer.
local DELIVERY_LEASE = 60000000

local function note_supervisor() note_presence({':unclaimed', ':deliveries', ':checks'}, DELIVERY_LEASE) end

-- Marks the sandboxes of a host that has been silent for host_span µs MISSING. Fails a sandbox that no host has claimed
-- for start_span µs in which supervisors were present.
local function mark_lost_sandboxes(host_span, start_span)
  for _, lost in ipairs(redis.call('ZRANGEBYSCORE', root .. ':hosts', '-inf', now - BEATS)) do
    local is_lost = is_silent(lost, host_span)
    for _, id in ipairs(is_lost and redis.call('SMEMBERS', root .. ':host:' .. lost) or {}) do
      local status = field(id, 'status')
      if field(id, 'wanted') == 'deleted' then
        remove(id, 'kept')
      elseif status and SEEN[status].MISSING then
        set_status(id, 'MISSING')
        redis.call('HSET', root .. ':box:' .. id, 'detail', 'Its host ' .. lost .. ', which has its files, does not answer')
      end
    end
    if is_lost then
      redis.call('ZREM', root .. ':hosts', lost)
      redis.call('HDEL', root .. ':supervisors', lost)
      redis.call('HDEL', root .. ':silent', lost)
    end
  end
  if presence() < tonumber(start_span) then return end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':unclaimed', '-inf', now - start_span)) do
    redis.call('ZREM', root .. ':unclaimed', id)
    if is_warm(id) then
      remove(id)
    elseif field(id, 'status') then
      set_status(id, 'ERROR')
      redis.call('HSET', root .. ':box:' .. id, 'detail', 'No supervisor has taken it: none runs, or all are busy')
    end
  end
end
