-- Bids with the number of their channel.
SELECT auction, bidder, price, channel, number FROM (
  SELECT *, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
    ELSE CASE WHEN contains(url, '&channel_id=') THEN regexp_extract(url, '&channel_id=([^&]*)', 1) END END AS number FROM bids)
WHERE number IS NOT NULL;
-- What the job wrote.
SELECT * FROM read_json('{results}', format = 'newline_delimited', columns = {auction: 'BIGINT', bidder: 'BIGINT', price: 'BIGINT', channel: 'VARCHAR', channel_id: 'VARCHAR'});
