-- _start_task: start tasks, their indexes and their three queues.
-- Included by every script that uses start tasks. An unfinished start task is in the queue `due`; READY and ERROR are
-- final. A failed one is in the queue `failed` until a driver has removed its conversation and sandbox. One that waits
-- for a place of a sandbox is also in the queue `waiting`, by its creation: the first of them is retried, and the
-- others are due when their wait ends.
-- include: _clock.lua
-- include: _presence.lua

local DRIVEN = {':due', ':failed', ':queues'} -- queues that drivers claim from
local FINISHED = {READY = true, ERROR = true}

local function field(id, name) return redis.call('HGET', root .. ':task:' .. id, name) end

-- Returns whether a start task is unfinished, and driven under that lease.
local function is_driven(id, lease)
  local status = field(id, 'status')
  return status and not FINISHED[status] and field(id, 'lease') == lease
end

-- Writes fields (name, value, …) and moves the start task in the order of last changes.
local function write(id, ...)
  redis.call('HSET', root .. ':task:' .. id, 'updated_at', now, ...)
  redis.call('ZADD', root .. ':updated', now, id)
  redis.call('ZADD', root .. ':updated:' .. (field(id, 'conversation_id') or ''), now, id)
end

-- Adds an unfinished start task (`SADD`) to the sets of start tasks that the deletion of its conversation or of the
-- parent ends, or removes it (`SREM`).
local function mark_under_way(id, command)
  for _, name in ipairs({'conversation_id', 'parent_id'}) do
    local conversation = field(id, name) or ''
    if conversation ~= '' then redis.call(command, root .. ':of:' .. conversation, id) end
  end
end

-- Removes a start task from the queue for places; the next one is due at once.
local function leave_queue(id)
  if redis.call('ZREM', root .. ':waiting', id) == 0 then return end
  redis.call('HDEL', root .. ':task:' .. id, 'waiting_at')
  local following = redis.call('ZRANGE', root .. ':waiting', 0, 0)[1]
  if following then
    redis.call('ZADD', root .. ':due', now, following)
    redis.call('PUBLISH', root .. ':signal', following)
  end
end

-- Finishes a start task, and deletes its secrets and its sealed body.
local function finish(id, status, detail)
  if status == 'ERROR' then redis.call('HSET', root .. ':task:' .. id, 'failed_in', field(id, 'status')) end
  write(id, 'status', status, 'detail', detail)
  redis.call('HDEL', root .. ':task:' .. id, 'secrets')
  redis.call('UNLINK', root .. ':body:' .. id)
  redis.call('ZREM', root .. ':due', id)
  leave_queue(id)
  mark_under_way(id, 'SREM')
  if status == 'ERROR' then redis.call('ZADD', root .. ':failed', now, id) end
end

local function forget(id)
  local conversation = field(id, 'conversation_id')
  leave_queue(id)
  mark_under_way(id, 'SREM')
  for _, by in ipairs({':created', ':updated'}) do
    redis.call('ZREM', root .. by, id)
    if conversation then redis.call('ZREM', root .. by .. ':' .. conversation, id) end
  end
  redis.call('ZREM', root .. ':due', id)
  redis.call('ZREM', root .. ':failed', id)
  redis.call('UNLINK', root .. ':task:' .. id, root .. ':body:' .. id)
end

-- Fails the start tasks whose lease ended more than span µs ago, while supervisors were present but none claimed them.
local function fail_orphans(span, detail)
  if presence() < tonumber(span) then return end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', root .. ':due', '-inf', now - span, 'LIMIT', 0, 100)) do
    local status = field(id, 'status')
    if not status or FINISHED[status] then redis.call('ZREM', root .. ':due', id)
    else finish(id, 'ERROR', detail) end
  end
end
