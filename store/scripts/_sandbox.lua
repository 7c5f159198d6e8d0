-- _sandbox: the state machine of sandboxes, and their indexes.
-- Included by every script that uses sandboxes. A sandbox has a status, which a supervisor observes, and a desired
-- state.
-- include: _clock.lua
-- include: _outbox.lua
-- include: _changes.lua
-- include: _warm.lua

-- The verbs of clients; `rest`, by which a supervisor pauses a sandbox that has used up a limit; `yield`, which makes
-- room. Each maps a status to {new desired state, new status}. Other statuses refuse.
local ASKED = {
  pause = {RUNNING = {'paused', 'RUNNING'}, PAUSED = {'paused', 'PAUSED'}},
  rest = {RUNNING = {'paused', 'RUNNING'}, PAUSED = {'paused', 'PAUSED'}, MISSING = {'paused', 'MISSING'}},
  yield = {RUNNING = {'paused', 'RUNNING'}},
  resume = {PAUSED = {'running', 'STARTING'}, RUNNING = {'running', 'RUNNING'}, STARTING = {'running', 'STARTING'},
    ERROR = {'running', 'STARTING'}, MISSING = {'running', 'STARTING'}},
  delete = {STARTING = {'deleted', 'STARTING'}, RUNNING = {'deleted', 'RUNNING'}, PAUSED = {'deleted', 'PAUSED'},
    ERROR = {'deleted', 'ERROR'}, MISSING = {'deleted', 'MISSING'}},
}

-- The reports of supervisors: status → the statuses that may follow. The loss of a host makes the first three MISSING.
-- A sandbox that is observed PAUSED while its desired state is running becomes STARTING.
local SEEN = {
  STARTING = {RUNNING = true, ERROR = true, MISSING = true},
  RUNNING = {PAUSED = true, STARTING = true, ERROR = true, MISSING = true},
  PAUSED = {STARTING = true, ERROR = true, MISSING = true},
  MISSING = {RUNNING = true, PAUSED = true, STARTING = true, ERROR = true},
  ERROR = {},
}

-- Seconds for which a removed sandbox cannot be started again by a driver that has read it before.
local LATE = 86400

local function field(id, name) return redis.call('HGET', root .. ':box:' .. id, name) end

-- Returns the indexes of a sandbox by status and by spec; `*` stands for any.
local function indexes(status, spec)
  return {':created:' .. status, ':created:*:' .. spec, ':created:' .. status .. ':' .. spec}
end

-- Stores the trace of its start, until it runs or has failed.
local function note_trace(id, trace)
  if trace ~= '' then redis.call('HSET', root .. ':box:' .. id, 'trace', trace)
  else redis.call('HDEL', root .. ':box:' .. id, 'trace') end
end

-- Revokes the keys of a sandbox whose processes have ended.
local function close_keys(id)
  redis.call('HDEL', root .. ':keys', field(id, 'hook_hash') or '', 'session ' .. (field(id, 'session_hash') or ''))
end

-- Sets a status, notifies of it, and moves the sandbox in the indexes.
local function set_status(id, status)
  local known, spec, created = unpack(redis.call('HMGET', root .. ':box:' .. id, 'status', 'spec_id', 'created_at'))
  if known == status then return end
  note_change(id)
  if known then
    for _, index in ipairs(indexes(known, spec)) do redis.call('ZREM', root .. index, id) end
  end
  for _, index in ipairs(indexes(status, spec)) do redis.call('ZADD', root .. index, created, id) end
  redis.call('HSET', root .. ':box:' .. id, 'status', status, 'changed_at', now)
  if status == 'ERROR' then
    close_keys(id)
    push_outbox(root, {id = 'msg_' .. id .. '-' .. now, type = 'sandbox.error', at = now, sandbox_id = id})
  end
end

-- Returns whether a supervisor holds the lease of a sandbox's host: nil if it is on another host, false if another one
-- does.
local function speaks_for(id, host, supervisor)
  if field(id, 'host') ~= host then return nil end
  return (redis.call('HGET', root .. ':supervisors', host) or supervisor) == supervisor
end

-- Records who has started a sandbox: the id of a key ("" nobody, as for a warm one).
local function own(id, owner)
  if owner == '' then return end
  redis.call('HSET', root .. ':box:' .. id, 'owner', owner)
  redis.call('SADD', root .. ':owned:' .. owner, id)
end

-- Requests the deletion of a sandbox. Lists omit it, unless its supervisor reports a failure.
local function leave(id)
  redis.call('HSET', root .. ':box:' .. id, 'wanted', 'deleted', 'leaving', '1')
  note_change(id)
end

-- Removes the record of a sandbox. files "kept": they are on its lost host, which removes them when it is back.
local function remove(id, files)
  local status, spec, host, runtime, owner, folder = unpack(redis.call('HMGET', root .. ':box:' .. id, 'status', 'spec_id',
    'host', 'runtime', 'owner', 'folder'))
  if not status then return end
  note_change(id)
  for _, index in ipairs(indexes(status, spec)) do redis.call('ZREM', root .. index, id) end
  redis.call('ZREM', root .. ':created', id)
  redis.call('ZREM', root .. ':unclaimed', id)
  redis.call('ZREM', root .. ':warm:' .. spec, id)
  close_keys(id)
  redis.call('SREM', root .. ':host:' .. host, id)
  if owner then
    redis.call('SREM', root .. ':owned:' .. owner, id)
    if redis.call('HGET', root .. ':workspaces', owner) == id then redis.call('HDEL', root .. ':workspaces', owner) end
  end
  if files == 'kept' and runtime then
    redis.call('SADD', root .. ':removals:' .. host, runtime .. ' ' .. id .. ((folder or '') ~= '' and ' ' .. folder or ''))
  end
  redis.call('UNLINK', root .. ':box:' .. id, root .. ':log:' .. id, root .. ':gone:' .. id,
    root .. ':places:' .. id, root .. ':reached:' .. id, root .. ':spent:' .. id)
  for _, at in ipairs(redis.call('HKEYS', root .. ':asked:' .. id)) do -- close_destinations ends the waits
    local member = id .. ' ' .. at
    local since = redis.call('ZSCORE', root .. ':asking', member)
    if since then redis.call('ZADD', root .. ':asking_ended', since, member) end
    redis.call('ZREM', root .. ':asking', member)
    redis.call('ZREM', root .. ':asking_due', member)
  end
  redis.call('UNLINK', root .. ':asked:' .. id)
  redis.call('SET', root .. ':ended:' .. id, '', 'EX', LATE)
end

-- Wakes the supervisors, because a client has changed the desired state of a sandbox. A sandbox without processes is
-- not named: whether it starts depends on the others that start.
local function signal(id)
  redis.call('PUBLISH', root .. ':signal', (field(id, 'handle') or '') == '' and '' or id)
end

-- Returns whether no supervisor can act on a sandbox: it has no host, or its host is lost. A failed one stays ERROR
-- then.
local function is_adrift(id)
  local host = field(id, 'host')
  return host == '' or field(id, 'status') == 'MISSING' or not redis.call('ZSCORE', root .. ':hosts', host)
end

-- Ends a sandbox and revokes its keys: without a live host at once, otherwise by its supervisor.
local function end_sandbox(id)
  if is_adrift(id) then
    remove(id, 'kept')
    return
  end
  close_keys(id)
  leave(id)
  signal(id)
end

-- Ends a warm sandbox that nobody has used.
local function discard(id)
  bind(id)
  end_sandbox(id)
end

-- Records that a sandbox is in use, at most once a second.
local function touch(id)
  local active = field(id, 'active_at')
  if active and math.abs(now - active) >= 1000000 then redis.call('HSET', root .. ':box:' .. id, 'active_at', now) end
end

-- Returns how to reach the agent of a sandbox, and counts as a use: the sandbox's status (MISSING if it is gone, PAUSED
-- if it soon is), the URL and the sealed key of its agent server.
local function agent_of(id)
  local status, url, agent_key, wanted = unpack(redis.call('HMGET', root .. ':box:' .. id, 'status', 'agent_url',
    'agent_key', 'wanted'))
  if not status then return {'MISSING', '', ''} end
  if status == 'RUNNING' and wanted == 'paused' then status = 'PAUSED' end
  touch(id)
  return {status, url, agent_key or ''}
end
