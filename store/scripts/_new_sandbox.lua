-- _new_sandbox: the record of a new sandbox.
-- include: _sandbox.lua
-- Adds a STARTING sandbox, which a supervisor claims unless it has a host. warm: version of its spec, "" if bound.
-- owner: see own().
local function add_sandbox(id, spec, host, files_key, source, gives_way, warm, owner)
  redis.call('HSET', root .. ':box:' .. id, 'id', id, 'spec_id', spec, 'created_at', now, 'starting_at', now,
    'active_at', now, 'wanted', 'running', 'host', host, 'handle', '', 'agent_url', '', 'detail', '', 'start', 0,
    'files_key', files_key, 'source', source, 'gives_way', gives_way, 'warm', warm)
  redis.call('ZADD', root .. ':created', now, id)
  if host == '' then
    redis.call('ZADD', root .. ':unclaimed', now, id)
  else
    redis.call('SADD', root .. ':host:' .. host, id)
  end
  if warm ~= '' then redis.call('ZADD', root .. ':warm:' .. spec, now, id) end
  own(id, owner)
  set_status(id, 'STARTING')
  signal(id)
end
