-- _rights: whether the data of a person's right are unchanged, in the step that uses the right.

-- Returns the value of a key in another slot; nil in a cluster, where this node may not have it: the caller has read it
-- just before.
local function elsewhere(key)
  local found = redis.pcall('GET', key)
  if type(found) == 'table' then return nil end
  return found or ''
end

-- rights: JSON of {version = of the grants, tags, owner}, as read by `store/access/people.py`; "" without grants.
local function have_changed(rights)
  if rights == '' then return false end
  local read, here = cjson.decode(rights), redis.call('HMGET', root, 'right_tags', 'owner')
  local version = elsewhere('{access}:grants_version')
  return (here[1] or '{}') ~= read.tags or (here[2] or '') ~= read.owner or (version ~= nil and version ~= read.version)
end
