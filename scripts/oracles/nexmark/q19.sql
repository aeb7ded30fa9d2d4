-- The ten highest bids of each auction, with ranks.
SELECT auction, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder) AS place, price, date_time, bidder
FROM bids QUALIFY place <= 10;
-- What the job wrote.
SELECT row.row.auction, row.rank, row.row.price, row.row.date_time, row.row.bidder FROM (
  SELECT row FROM read_json('{results}', format = 'newline_delimited', columns = {kind: 'VARCHAR', row: 'STRUCT(rank BIGINT, row STRUCT(auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time BIGINT, extra VARCHAR))'})
  GROUP BY row HAVING sum(adds(kind)) > 0);
